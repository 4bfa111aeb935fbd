"""Sentence encoders: texts with the same meaning have similar vectors."""
