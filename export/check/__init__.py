"""Compares an exported model with its work directory."""
