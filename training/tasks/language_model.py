"""Language modelling: plain text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from training.config.options import DataConfig
from training.config.vocabularies import Tokenizers
from training.data import TextData, Texts
from training.data.batching import Batches, DocumentBatches, WindowBatches
from training.data.encoding import encode_split
from training.data.sampling import samplers
from training.tasks.task import Task, cut
from zoo.errors import InputError


class LanguageModelTask(Task[TextData]):
    """Continues a text, token by token.

    The lines of a continuous text are one stream of tokens. After each line it has a line break, if the tokens are
    characters, or else the end token. Separate texts are not joined.
    """

    name = "language_model"
    unit = "texts"

    def model_options(self, options: Mapping[str, Any], settings: DataConfig, tokenizers: Tokenizers) -> dict[str, Any]:
        length = settings.max_length + 1 if options["max_length"] is None else options["max_length"]
        return {"vocab_size": tokenizers["text"].vocab_size, "max_length": length}

    def batches(
        self, settings: DataConfig, data: TextData, split: str, tokenizers: Tokenizers, **options: Any
    ) -> Batches:
        encoded = encode_split(data, split, tokenizers)
        rows = encoded.columns["text"]
        if data.joined:
            if settings.sampling:
                raise InputError(f"data.sampling is for separate texts; {data.spec} is a continuous text.")
            options.pop("static_shapes")  # all windows have the same shape
            return WindowBatches(rows, settings.max_length, **options)
        if split == "train":  # the beginnings of long texts
            options["samplers"] = samplers(settings.sampling, [tokenizers["text"]])
            (rows,) = cut([rows], settings.max_length, "texts of the train split")
            return DocumentBatches(rows, corpus=encoded.corpus, **options)
        return DocumentBatches(rows.split_long(settings.max_length), **options)

    def evaluate(self, run: Any, data: TextData, split: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        """Returns the share of texts that the model completes exactly from their prompts; nothing without prompts."""
        texts = data.split(split).texts
        if not data.prompt_end:
            return {}, []
        prompts = ["".join(text.partition(data.prompt_end)[:2]) for text in texts]
        answers = [prompt + end for prompt, end in zip(prompts, run.generate(prompts, **options), strict=True)]
        return self.measure(data.split(split), answers), answers

    def measure(self, examples: Texts, answers: Sequence[str], spec: str = "") -> dict[str, Any]:
        if not answers:
            return {}
        equal = sum(answer == text for answer, text in zip(answers, examples.texts, strict=True))
        return {"exact_match": equal / len(answers)}

    def sources(self, examples: Texts) -> list[str]:
        return examples.texts

    def derived(self, cross_entropy: float, tokens: int, examples: Any) -> dict[str, float]:
        """Returns the perplexity, and the bits per character, which do not depend on the tokenizer."""
        characters = sum(len(text) + 1 for text in examples.texts)  # the line break or the end counts
        bits = cross_entropy / math.log(2) * tokens / characters
        return {**super().derived(cross_entropy, tokens, examples), "bits_per_character": bits}
