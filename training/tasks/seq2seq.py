"""Sequence to sequence: pairs of texts."""

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.config.options import DataConfig
from training.data import Pairs, ParallelData
from training.data.alignments import read_alignments, symbol_links, word_spans
from training.data.batching import PairBatches
from training.tasks.metrics import translation_metrics
from training.tasks.task import Task, Tokenizers, cut
from zoo.vocabulary import END


class Seq2SeqTask(Task[ParallelData]):
    """Reads one text and writes another."""

    name = "seq2seq"
    unit = "pairs"
    tokenizer_names = ("source", "target")

    def settle(self, settings: DataConfig, data: ParallelData) -> DataConfig:
        shared = data.shared_vocabulary if settings.shared_vocabulary is None else settings.shared_vocabulary
        return dataclasses.replace(super().settle(settings, data), shared_vocabulary=shared)

    def make_tokenizers(self, settings: DataConfig, data: ParallelData) -> Tokenizers:
        learn, pairs = self.learner(settings), data.split("train")
        if settings.shared_vocabulary:
            shared = learn([*pairs.source, *pairs.target])
            return {"source": shared, "target": shared}
        return {"source": learn(pairs.source), "target": learn(pairs.target)}

    def model_options(self, options: Mapping[str, Any], settings: DataConfig, tokenizers: Tokenizers) -> dict[str, Any]:
        sizes = {f"{side}_vocab_size": tokenizer.vocab_size for side, tokenizer in tokenizers.items()}
        if not settings.shared_vocabulary and options.get("tied_embeddings") == "auto":
            return {**sizes, "tied_embeddings": "target"}
        return sizes

    def batches(
        self, settings: DataConfig, data: ParallelData, split: str, tokenizers: Tokenizers, **options: Any
    ) -> PairBatches:
        pairs = data.split(split)
        columns = [tokenizers["source"].encode(pairs.source), tokenizers["target"].encode(pairs.target)]
        if split == "train" and settings.alignments:
            options["links"] = _links(settings.alignments, pairs, tokenizers, columns)
        if split == "train":
            columns = cut(columns, settings.max_length - 1, "pairs of the train split")
        source, target = columns
        return PairBatches([[*row, END] for row in source], target, **options)

    def evaluate(self, run: Any, data: ParallelData, split: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        pairs = data.split(split)
        started = time.monotonic()
        hypotheses = run.translate(pairs.source, **options)
        seconds = time.monotonic() - started
        return {**self.measure(pairs, hypotheses), "decoding_seconds": round(seconds, 2)}, hypotheses

    def measure(self, examples: Pairs, answers: Sequence[str]) -> dict[str, Any]:
        return translation_metrics(answers, examples.target)

    def sources(self, examples: Pairs) -> list[str]:
        return examples.source


def _links(path: str, pairs: Pairs, tokenizers: Tokenizers, columns: Sequence[list[list[int]]]) -> list[Any]:
    """Returns the symbols that belong together in each pair, by a file of word alignments."""
    words = read_alignments(Path(path), pairs)
    spans = [
        word_spans(tokenizers[side], texts, rows)
        for side, texts, rows in zip(("source", "target"), (pairs.source, pairs.target), columns, strict=True)
    ]
    lost = sum(None in both for both in zip(*spans, strict=True))
    if lost:
        print(
            f"{lost} of {len(words)} pairs have no alignment: their symbols are not those of their words",
            file=sys.stderr,
        )
    return [symbol_links(*each) for each in zip(words, *spans, strict=True)]
