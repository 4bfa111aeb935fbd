"""Sentence encoders: one vector for a text, near those of texts that mean the same."""
