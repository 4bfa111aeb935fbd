"""Imports checkpoints of other software as work directories."""
