"""Runs a model over whole corpora, as an Apache Beam pipeline: `python -m export.batch --model_path BASE/VERSION …`."""

from export.batch.cli import command, main

__all__ = ["command", "main"]
