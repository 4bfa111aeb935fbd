"""A request to decode, declared once: what runs, evaluations and exports of trained models are asked with.

No Keras here, so that commands can read and check a request before the backend starts.
"""

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from zoo.errors import InputError
from zoo.options import Option, Options, choice, count, flag, number, size
from zoo.presets import workdir_path
from zoo.registry import get_spec
from zoo.text import load_tokenizers
from zoo.vocabulary import SPECIAL_PIECES
from zoo.workdir import WorkDir

RULES = ("gnmt", "huggingface", "huggingface_early", "huggingface_never", "ctranslate2")
"""Whose rules a search may follow; see `zoo.decoding.BEAM_RULES`."""


def check_reranking(reranking: str, beam_size: int) -> None:
    """Raises InputError if there are no several translations to choose from."""
    if beam_size < 2:
        raise InputError(
            f"--rerank {reranking} chooses among the translations of a beam: use --beam_size 5, say. "
            f"Received: beam_size={beam_size}."
        )


def add_ensemble(parser: ArgumentParser) -> None:
    """Adds the argument that names the other members of an ensemble."""
    parser.add_argument(
        "--ensemble",
        action="append",
        default=[],
        metavar="DIR",
        help="seq2seq: a work directory with the same tokenizers, which chooses every symbol together with this one; "
        "again for more",
    )


LANGUAGES = ("source_language", "target_language")
"""Options that name the languages of a translator of many."""


def add_languages(parser: ArgumentParser, default: str = "that of the work directory") -> None:
    """Adds the arguments that name the languages of a translator of many; help says what is the default."""
    for name, what in zip(LANGUAGES, ("sources", "translations"), strict=True):
        parser.add_argument(
            f"--{name}",
            metavar="CODE",
            help=f"of a translator of many languages, such as NLLB: the code of the language of {what}, such as "
            f"deu_Latn; default: {default}",
        )


def together(first: Any, others: Sequence[Any]) -> Any:
    """Returns what `zoo.load` takes for a work directory and the other members of its ensemble, which may be none.

    Raises:
        InputError: If the others are one path.
    """
    if isinstance(others, str | bytes | os.PathLike):
        raise InputError(f"The members of an ensemble are a list of work directories. Received: {others!r}.")
    return [first, *others] if others else first


def check_ensemble(paths: Sequence[str | os.PathLike[str]]) -> None:
    """Raises InputError unless there are work directories, all of translators, whose tokenizers are the same."""
    if not paths:
        raise InputError("An ensemble needs at least one work directory. Received: none.")
    folders = [workdir_path(path).resolve() for path in paths]
    if twice := next((folder for folder in folders if folders.count(folder) > 1), None):
        raise InputError(f"An ensemble needs different models: {twice} is named twice.")
    identities = []
    for path in paths:
        workdir = WorkDir(workdir_path(path))
        model = workdir.read_config()["model"]
        if (task := get_spec(model["name"]).task) != "seq2seq":
            raise InputError(f"An ensemble is of seq2seq models; {path} holds a {task} model.")
        tokenizers = load_tokenizers(workdir, ("source", "target"), model)
        identities.append([tokenizer.identity() for tokenizer in tokenizers.values()])
        if identities[0] != identities[-1]:
            raise InputError(
                f"{paths[0]} and {path} have other symbols, so that they cannot choose one together. Train them on the "
                "same data, or one from the other with --init_from."
            )


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(Options):
    """How a sequence-to-sequence model is decoded."""

    beam_size: int = size(1, "Hypotheses that beam search keeps; 1 for greedy search.")
    rules: str = choice(
        "gnmt",
        RULES,
        "Whose rules search follows, so that a checkpoint gives the answers that it gives there: those of GNMT, where "
        "texts that have ended rank by log P / ((5 + length) / 6)^length_penalty; or those of Hugging Face's "
        "`transformers` (early_stopping False, True or never) or CTranslate2, where they rank by "
        "log P / length^length_penalty and have no limit but `max_length`; by those of CTranslate2 none is empty.",
    )
    length_penalty: float | None = number(
        None,
        "Exponent of the length penalty of beam search: 0.6 by the rules of GNMT, else 1.",
        minimum=0,
        automatic=True,
    )
    coverage_penalty: float = number(
        0.0,
        "Factor of the coverage penalty of beam search, for models that attend; the mean over layers and heads counts.",
        minimum=0,
    )
    max_length: int = size(
        256,
        "Largest number of target symbols, the end included; a sentence is also limited to twice the number of its "
        "source symbols plus 10 by the rules of GNMT.",
    )
    force_end: bool = flag(
        False,
        "Whether the last symbol of an answer that reaches its largest number is the end, which then takes nothing "
        "from its log probability, as `forced_eos_token_id` says in `transformers`; else such an answer is cut.",
    )
    no_repeat_ngram: int = count(0, "No n symbols come twice in an answer; 0: they may.")
    nbest: int | None = size(
        None, "Answers to each sentence, at most `beam_size`; the fewer, the sooner search ends.", automatic=True
    )
    shortlist: int = count(
        0,
        "Target symbols among which a batch is translated, by the likely translations of its source symbols that "
        "`training.shortlist` has written into the work directory; 0: all. The fewer, the faster. Answers then depend "
        "a little on the texts of their batch, and log probabilities are those among these symbols.",
    )

    def check(self) -> None:
        if self.nbest is not None and self.nbest > self.beam_size:
            raise InputError(f"`nbest` must be from 1 to `beam_size`, {self.beam_size}. Received: nbest={self.nbest}.")

    def resolved(self, model: Any) -> Self:
        """Returns the options for a `Seq2SeqModel`, which fills in what was left to it.

        Raises:
            InputError: If the model cannot be decoded like this.
        """
        if 2 * self.beam_size > model.target_vocab_size:
            raise InputError(
                f"`beam_size` must be at most half the vocabulary of {model.target_vocab_size}. "
                f"Received: beam_size={self.beam_size}."
            )
        least = max(2 * self.beam_size, len(SPECIAL_PIECES))
        if 0 < self.shortlist < least:
            raise InputError(
                f"`shortlist` must be 0 or at least {least} with beam_size={self.beam_size}. "
                f"Received: shortlist={self.shortlist}."
            )
        if self.coverage_penalty and not model.attends:
            raise InputError(
                f"{type(model).__name__} has no attention that could cover the source. Received: "
                f"coverage_penalty={self.coverage_penalty}."
            )
        if self.coverage_penalty and self.rules != "gnmt":
            raise InputError(
                "`coverage_penalty` is for the rules of GNMT. "
                f"Received: coverage_penalty={self.coverage_penalty}, rules={self.rules!r}."
            )
        return replace(
            self,
            nbest=self.nbest or self.beam_size,
            length_penalty=self.exponent(),
            shortlist=min(self.shortlist, model.target_vocab_size),
        )

    def exponent(self) -> float:
        """Returns the exponent of the length penalty."""
        if self.length_penalty is None:
            return 0.6 if self.rules == "gnmt" else 1.0
        return self.length_penalty


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(Options):
    """How a language model is decoded."""

    temperature: float = number(
        0.0, "Divides the logits before symbols are drawn; 0 takes the most probable symbol.", minimum=0
    )
    top_k: int = count(0, "Draw among this many most probable symbols only; 0 for all.")
    top_p: float = number(1.0, "Draw among the fewest symbols that together have this probability.", above=0, maximum=1)
    max_length: int | None = size(
        None,
        "Largest number of symbols, those of the prompt included; at most what the model can hold.",
        automatic=True,
    )
    no_repeat_ngram: int = count(0, "No n symbols come twice, those of the prompt included; 0: they may.")

    def resolved(self, model: Any) -> Self:
        """Returns the options for a `LanguageModel`, which fills in what was left to it.

        Raises:
            InputError: If the model cannot be decoded like this.
        """
        max_length = model.max_length if self.max_length is None else self.max_length
        if max_length > model.max_length:
            raise InputError(f"`max_length` must be from 1 to {model.max_length}. Received: max_length={max_length}.")
        return replace(self, max_length=max_length)


SEED = Option(0, int, "Seed of the draws.", minimum=-(1 << 31), maximum=(1 << 31) - 1)
