"""What all layers are built on: masks, softmax, kernels of each backend, projections, checks, saving."""
