"""Where queries and keys are: positions for embeddings, heads, scores and values."""
