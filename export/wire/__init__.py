"""Tensors and messages as TensorFlow Serving sends them."""
