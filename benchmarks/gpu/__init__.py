"""Speed of training, attention and decoding on one GPU within some minutes: ours on JAX beside compiled PyTorch."""
