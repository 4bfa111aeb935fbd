"""Compares imported checkpoints with their own software: logits, texts and ids."""
