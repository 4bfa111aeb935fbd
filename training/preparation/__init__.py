"""Encodes a corpus of any size into token shards: `training.prepare`. Without Keras."""
