"""What all layers stand on: checks, serialization, initializers, dropout, and the kernels of each backend."""
