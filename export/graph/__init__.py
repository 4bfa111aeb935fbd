"""The contents of a SavedModel: signatures, tokenizers, batching, weights, warm-up requests."""
