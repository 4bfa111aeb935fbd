"""What all layers are built on: execution of attention, kernels of each backend, projections, checks, saving."""
