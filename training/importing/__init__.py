"""Checkpoints of others become work directories: formats of files, and one file for each family of models."""
