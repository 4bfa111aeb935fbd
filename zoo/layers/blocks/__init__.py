"""Building blocks of models: Transformer blocks, gated convolutions, maxout."""
