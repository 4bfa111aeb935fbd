"""Sequence to sequence: pairs of texts."""

import time

from training.data.batching import PairBatches
from training.tasks.metrics import translation_metrics
from training.tasks.task import Task, cut
from zoo.text import END


class Seq2SeqTask(Task):
    """Reads one text and writes another."""

    name = "seq2seq"
    unit = "pairs"

    def settle(self, settings, data):
        super().settle(settings, data)
        if settings.shared_vocabulary is None:
            settings.shared_vocabulary = data.shared_vocabulary

    def make_tokenizers(self, settings, data):
        learn, pairs = self.learner(settings, data), data.split("train")
        if settings.shared_vocabulary:
            shared = learn([*pairs.source, *pairs.target])
            return {"source": shared, "target": shared}
        return {"source": learn(pairs.source), "target": learn(pairs.target)}

    def complete(self, config, data, tokenizers):
        for side, tokenizer in tokenizers.items():
            config.model[f"{side}_vocab_size"] = tokenizer.vocab_size
        if not config.data.shared_vocabulary and config.model.get("tied_embeddings") == "auto":
            config.model["tied_embeddings"] = "target"

    def batches(self, config, data, split, tokenizers, **options):
        pairs = data.split(split)
        columns = [tokenizers["source"].encode(pairs.source), tokenizers["target"].encode(pairs.target)]
        if split == "train":
            columns = cut(columns, config.data.max_length - 1, "pairs of the train split")
        source, target = columns
        return PairBatches([[*row, END] for row in source], target, **options)

    def evaluate(self, run, data, split, **options):
        pairs = data.split(split)
        started = time.monotonic()
        hypotheses = run.translate(pairs.source, **options)
        seconds = time.monotonic() - started
        metrics = translation_metrics(hypotheses, pairs.target)
        return {**metrics, "decoding_seconds": round(seconds, 2)}, hypotheses
