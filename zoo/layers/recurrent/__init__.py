"""Recurrent cells with attention, and the layers that run them over a sequence."""
