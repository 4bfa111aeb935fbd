"""Causal language models."""
