"""Rows of `results/*.csv`, and the pages and pictures that are made of them: `python -m benchmarks.results`."""
