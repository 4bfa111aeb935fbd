"""A small model server on the official TensorFlow Serving interfaces; `export.serve` is its command."""
