"""What goes into a SavedModel: signatures, tokenizers, batching, weights, warm-up requests."""
