"""What models are stacked from: feed-forward networks, normalisation, Transformer blocks, convolutions."""
