"""Training steps of this zoo beside its peers, on the same architecture and the same batch."""
