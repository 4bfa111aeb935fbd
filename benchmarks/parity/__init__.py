"""Compares imported checkpoints with the software that they are of, number for number and letter for letter."""
