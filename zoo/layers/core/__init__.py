"""Foundations of the layers: base classes, masks, softmax, operations that differ by backend, projections, checks."""
