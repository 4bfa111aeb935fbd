"""The parts that models of several families share: options, embeddings, positions, pooling."""
