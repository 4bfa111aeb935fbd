"""Checkpoints of others: formats of files, and one file for each family of models."""
