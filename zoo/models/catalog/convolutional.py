"""Convolutional sequence-to-sequence models."""
