"""Adapters: each runs one library, in its own environment, and imports nothing of this project but the protocol."""
