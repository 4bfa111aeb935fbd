"""The options of decoding, declared once for runs, evaluations and exports of trained models.

This module does not import Keras, so that commands can read and check options before the backend starts.
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
"""The rules of beam search; see `zoo.decoding.BEAM_RULES`."""


def check_reranking(reranking: str, beam_size: int) -> None:
    """Raises InputError if there is only one translation to choose from."""
    if beam_size < 2:
        raise InputError(
            f"--rerank {reranking} chooses among the translations of a beam and requires, e.g., --beam_size 5. "
            f"Received: beam_size={beam_size}."
        )


def add_ensemble(parser: ArgumentParser) -> None:
    """Adds the argument for the other members of an ensemble."""
    parser.add_argument(
        "--ensemble",
        action="append",
        default=[],
        metavar="DIR",
        help="seq2seq: a work directory with the same tokenizers, which chooses every token together with this one; "
        "can be repeated",
    )


LANGUAGES = ("source_language", "target_language")
"""The options for the languages of a multilingual translator."""


def add_languages(parser: ArgumentParser, default: str = "that of the work directory") -> None:
    """Adds the arguments for the languages of a multilingual translator; `default` describes the default in help."""
    for name, side in zip(LANGUAGES, ("sources", "translations"), strict=True):
        parser.add_argument(
            f"--{name}",
            metavar="CODE",
            help=f"for multilingual translators, such as NLLB: the code of the language of {side}, such as deu_Latn; "
            f"default: {default}",
        )


def together(first: Any, others: Sequence[Any]) -> Any:
    """Returns the argument of `zoo.load` for a work directory and the other members of its ensemble, if any.

    Raises:
        InputError: If `others` is a single path.
    """
    if isinstance(others, str | bytes | os.PathLike):
        raise InputError(f"The members of an ensemble must be a list of work directories. Received: {others!r}.")
    return [first, *others] if others else first


def check_ensemble(paths: Sequence[str | os.PathLike[str]]) -> None:
    """Raises InputError unless there are work directories, all of translators with the same tokenizers."""
    if not paths:
        raise InputError("An ensemble requires at least one work directory. Received: none.")
    folders = [workdir_path(path).resolve() for path in paths]
    if duplicate := next((folder for folder in folders if folders.count(folder) > 1), None):
        raise InputError(f"The members of an ensemble must be different. Received: {duplicate} twice.")
    identities = []
    for path in paths:
        workdir = WorkDir(workdir_path(path))
        model = workdir.read_config()["model"]
        if (task := get_spec(model["name"]).task) != "seq2seq":
            raise InputError(f"The members of an ensemble must be seq2seq models; {path} is a {task} model.")
        tokenizers = load_tokenizers(workdir, ("source", "target"), model)
        identities.append([tokenizer.identity() for tokenizer in tokenizers.values()])
        if identities[0] != identities[-1]:
            raise InputError(
                f"{paths[0]} and {path} have different tokenizers and cannot be an ensemble. Train them on the same "
                "data, or one from the other with --init_from."
            )


def check_draft_search(draft_length: int, beam_size: int) -> None:
    """Raises InputError if tokens are to be drafted for beam search."""
    if draft_length and beam_size > 1:
        raise InputError(
            f"`draft_length` requires greedy search, beam_size=1. Received: draft_length={draft_length}, "
            f"beam_size={beam_size}."
        )


def check_drafts(draft_length: int, model: Any, **others: Any) -> None:
    """Raises InputError if tokens are to be drafted, and the model or other options, which must be 0, prevent that."""
    if not draft_length:
        return
    if not model.can_rewind:
        raise InputError(
            "`draft_length` requires a Transformer whose decoder keeps the keys and values of all positions, which "
            f"{type(model).__name__} does not do here. Received: draft_length={draft_length}."
        )
    for name, value in others.items():
        if value:
            raise InputError(f"`draft_length` cannot be used with `{name}`. Received: {name}={value}.")


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(Options):
    """The decoding options of a sequence-to-sequence model."""

    beam_size: int = size(1, "Hypotheses of beam search; 1 for greedy search.")
    rules: str = choice(
        "gnmt",
        RULES,
        "The rules of beam search. By those of GNMT, hypotheses rank by log P / ((5 + length) / 6)^length_penalty. "
        "By those of Hugging Face's `transformers` (early_stopping False, True or never) and of CTranslate2, they rank "
        "by log P / length^length_penalty and only `max_length` limits them, as in that library. By those of "
        "CTranslate2, no translation is empty.",
    )
    length_penalty: float | None = number(
        None,
        "Exponent of the length penalty of beam search: 0.6 by the rules of GNMT, else 1.",
        minimum=0,
        maximum=10,
        automatic=True,
    )
    coverage_penalty: float = number(
        0.0,
        "Factor of the coverage penalty of beam search, for models with attention: its mean over layers and heads.",
        minimum=0,
    )
    max_length: int = size(
        256,
        "Maximum number of target tokens, including the end; by the rules of GNMT, a sentence is also limited to twice "
        "the number of its source tokens plus 10.",
    )
    force_end: bool = flag(
        False,
        "Whether a translation of the maximum length ends with the end token, whose log probability is then not "
        "counted, as with `forced_eos_token_id` in `transformers`; otherwise it is cut.",
    )
    no_repeat_ngram: int = count(0, "No n-gram of this size occurs twice in a translation; 0 for no such constraint.")
    nbest: int | None = size(
        None, "Translations of each sentence, at most `beam_size`; with fewer, search ends sooner.", automatic=True
    )
    shortlist: int = count(
        0,
        "Number of target tokens among which a batch is translated; 0 for all, fewer are faster. They are selected by "
        "the likely translations of the source tokens, a table of the work directory that `training.shortlist` writes. "
        "Translations then depend slightly on the other texts of a batch, and log probabilities are those among these "
        "tokens.",
    )

    draft_length: int = count(
        0,
        "Number of tokens that greedy search drafts, by looking up the last tokens in the translation so far (and in "
        "the source, if both have one vocabulary) or by a draft model, and confirms by one call of the model; 0 for "
        "none. Translations stay the same; it is faster for single texts, if they repeat themselves or their source, "
        "or the draft model is often right.",
    )

    def check(self) -> None:
        check_draft_search(self.draft_length, self.beam_size)
        if self.nbest is not None and self.nbest > self.beam_size:
            raise InputError(f"`nbest` must be from 1 to `beam_size`, {self.beam_size}. Received: nbest={self.nbest}.")

    def resolved(self, model: Any) -> Self:
        """Returns the options for a `Seq2SeqModel`, with defaults filled in that depend on the model.

        Raises:
            InputError: If the model does not support the options.
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
                f"`coverage_penalty` requires attention, which {type(model).__name__} lacks. Received: "
                f"coverage_penalty={self.coverage_penalty}."
            )
        if self.coverage_penalty and self.rules != "gnmt":
            raise InputError(
                "`coverage_penalty` requires the rules of GNMT. "
                f"Received: coverage_penalty={self.coverage_penalty}, rules={self.rules!r}."
            )
        check_drafts(self.draft_length, model, no_repeat_ngram=self.no_repeat_ngram, shortlist=self.shortlist)
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
    """The decoding options of a language model."""

    temperature: float = number(
        0.0, "Divisor of the logits before sampling; 0 chooses the most probable token.", minimum=0
    )
    top_k: int = count(0, "Sample only from this many most probable tokens; 0 for all.")
    top_p: float = number(
        1.0, "Sample from the smallest set of most probable tokens with this total probability.", above=0, maximum=1
    )
    max_length: int | None = size(
        None, "Maximum number of tokens, including the prompt; at most that of the model.", automatic=True
    )
    no_repeat_ngram: int = count(
        0, "No n-gram of this size occurs twice, including the prompt's; 0 for no such constraint."
    )
    draft_length: int = count(
        0,
        "Number of tokens to draft, by looking up the last tokens in the text so far or by a draft model, and to "
        "confirm by one call of the model; 0 for none. Texts stay the same; it is faster for single texts, if they are "
        "long or repeat themselves, or the draft model is often right.",
    )

    def resolved(self, model: Any) -> Self:
        """Returns the options for a `LanguageModel`, with defaults filled in that depend on the model.

        Raises:
            InputError: If the model does not support the options.
        """
        max_length = model.max_length if self.max_length is None else self.max_length
        if max_length > model.max_length:
            raise InputError(f"`max_length` must be from 1 to {model.max_length}. Received: max_length={max_length}.")
        check_drafts(self.draft_length, model, no_repeat_ngram=self.no_repeat_ngram)
        return replace(self, max_length=max_length)


SEED = Option(0, int, "Seed for sampling.", minimum=-(1 << 31), maximum=(1 << 31) - 1)
