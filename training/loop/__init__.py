"""The training loop: rounds, checkpoints, progress, failures."""
