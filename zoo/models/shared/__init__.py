"""What models of several families share: options, embeddings, pooling, checks."""
