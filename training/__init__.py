"""Training: datasets, configurations, one loop, losses, metrics and evaluation."""
