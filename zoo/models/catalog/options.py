"""Options without a default that the models of a task share."""

SEQ2SEQ = ("source_vocab_size", "target_vocab_size")
CLASSIFIER = ("vocab_size", "num_classes")
LANGUAGE_MODEL = ("vocab_size",)
