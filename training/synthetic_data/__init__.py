"""Parallel corpora whose texts come from models: distillation and back-translation."""
