"""What trains and attends how fast on one GPU: ours on JAX beside compiled PyTorch, within some minutes."""
