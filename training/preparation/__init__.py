"""From a corpus of any size to token shards: `training.prepare`. Without Keras."""
