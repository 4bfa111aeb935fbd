"""Positions of queries and keys, as terms of embeddings, heads, scores and values."""
