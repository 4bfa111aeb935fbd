"""Compares an exported model with the work directory that it came from."""
