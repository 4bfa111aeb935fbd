"""Checkpoints of others become work directories."""
