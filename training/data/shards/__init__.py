"""Token shards: corpora as flat arrays of ids in files, which are mapped into memory; see docs/shards.md."""
