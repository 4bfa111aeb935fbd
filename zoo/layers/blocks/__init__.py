"""Building blocks of models: feed-forward networks, normalisation, Transformer blocks, gated convolutions."""
