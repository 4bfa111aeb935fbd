"""Metrics of a trained run: on a split, by groups of its examples, and of reranked translations."""
