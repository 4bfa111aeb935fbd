"""Rows of `results/*.csv`, and the pages and pictures written from them: `python -m benchmarks.results`."""
