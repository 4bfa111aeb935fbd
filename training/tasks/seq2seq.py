"""Sequence to sequence: pairs of texts."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.config.options import DataConfig
from training.config.vocabularies import Tokenizers
from training.data import Pairs, ParallelData
from training.data.alignments import read_alignments, token_links, word_spans
from training.data.batching import PairBatches
from training.data.encoding import encode_split
from training.data.languages import language_of, target_language
from training.data.sampling import samplers
from training.tasks.metrics import translation_metrics
from training.tasks.task import Task, cut
from zoo.errors import InputError


class Seq2SeqTask(Task[ParallelData]):
    """Generates a target text from a source text."""

    name = "seq2seq"
    unit = "pairs"
    tokenizer_names = ("source", "target")

    def model_options(self, options: Mapping[str, Any], settings: DataConfig, tokenizers: Tokenizers) -> dict[str, Any]:
        sizes = {f"{side}_vocab_size": tokenizer.vocab_size for side, tokenizer in tokenizers.items()}
        if not settings.shared_vocabulary and options.get("tied_embeddings") == "auto":
            return {**sizes, "tied_embeddings": "target"}
        return sizes

    def batches(
        self, settings: DataConfig, data: ParallelData, split: str, tokenizers: Tokenizers, **options: Any
    ) -> PairBatches:
        encoded = encode_split(data, split, tokenizers)
        source, target = encoded.columns["source"], encoded.columns["target"]
        if split == "train" and settings.alignments:
            if settings.sampling:
                raise InputError(f"data.alignments needs data.sampling=0. Received: data.sampling={settings.sampling}.")
            options["links"] = _links(settings.alignments, data.split(split), tokenizers)
        if split == "train":
            options["samplers"] = samplers(settings.sampling, [tokenizers["source"], tokenizers["target"]])
            source, target = cut([source, target], settings.max_length, "pairs of the train split")
        return PairBatches(source, target, corpus=encoded.corpus, **options)

    def evaluate(self, run: Any, data: ParallelData, split: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        pairs = data.split(split)
        started = time.monotonic()
        hypotheses = run.translate(pairs.source, **options)
        seconds = time.monotonic() - started
        return {**self.measure(pairs, hypotheses, data.spec), "decoding_seconds": round(seconds, 2)}, hypotheses

    def measure(self, examples: Pairs, answers: Sequence[str], spec: str = "") -> dict[str, Any]:
        return translation_metrics(answers, examples.target, target_language(spec) or language_of(examples.target))

    def sources(self, examples: Pairs) -> list[str]:
        return examples.source


def _links(path: str, pairs: Pairs, tokenizers: Tokenizers) -> list[Any]:
    """Returns the aligned tokens of each pair, from a file of word alignments."""
    words = read_alignments(Path(path), pairs)
    spans = [
        word_spans(tokenizers[side], texts, tokenizers[side].encode(texts))
        for side, texts in (("source", pairs.source), ("target", pairs.target))
    ]
    lost = sum(None in both for both in zip(*spans, strict=True))
    if lost:
        print(
            f"{lost} of {len(words)} pairs have no alignment: their tokens do not match their words",
            file=sys.stderr,
        )
    return [token_links(*pair) for pair in zip(words, *spans, strict=True)]
