"""The base class of the runs of all tasks."""

import copy
import operator
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from zoo.errors import InputError
from zoo.explorer import Page, View
from zoo.inference.answers import TextAttention
from zoo.inference.comparison import Comparison, compare_word
from zoo.inference.decoders import check_draft
from zoo.inference.predictor import Predictor
from zoo.options import Option
from zoo.registry import ModelSpec, create_model, get_spec
from zoo.text import Around, Tokenizer, load_tokenizers, without_surrogates
from zoo.vocabulary import pad
from zoo.workdir import WorkDir

MAX_TEXT_BYTES = 1 << 15
"""Maximum length of a text in bytes of UTF-8; texts are cut before tokenization, ids after it."""

MAX_PREDICTORS = 16
"""Maximum number of traced graphs that a run keeps, such as those of different decoding options."""

_BATCH_SIZE = Option(64, int, "Texts in a batch.", minimum=1)
_NEIGHBOURS = Option(5, int, "Number of neighbours.", minimum=0)

_MAIN_METHODS = ("translate", "nbest", "classify", "generate", "embed_text", "score", "attention", "embed", "explore")
"""The methods that the representation of a run lists."""

Inputs = dict[str, np.ndarray]
"""Inputs of a model: arrays with the batch axis first."""


class Run:
    """A trained work directory.

    Attributes:
        model: The `keras.Model`, in float32.
        config: The resolved configuration, a dict.
        spec: The `ModelSpec`.
        path: The work directory.
        tokenizers: A named tuple of the tokenizers.
        draft: The run of the model that drafts tokens, see `with_draft`; or `None`.

    Args:
        path: The work directory.

    Raises:
        InputError: If it is not a work directory, or its training has not finished.
    """

    tokenizers_type: type[Any]
    draft: "Run | None" = None

    def __init__(self, path: str | os.PathLike[str]):
        workdir = WorkDir(path)
        self.path = workdir.path
        self.config: dict[str, Any] = workdir.read_config()
        if not workdir.model.is_file():
            raise InputError(
                f"{workdir.path} has no {workdir.model.name}: its training has not finished (see --resume)."
            )
        self.spec = self.spec_of(path)
        self.spec.load_class()  # registers the class by its name in the file
        self.tokenizers = self.tokenizers_type(
            **load_tokenizers(workdir, self.tokenizers_type._fields, self.config["model"])
        )
        self.model = self._load_model(workdir)
        self._predictors: dict[Hashable, Predictor] = {}

    def __repr__(self) -> str:
        methods = [name for name in _MAIN_METHODS if hasattr(type(self), name)]
        drafting = "" if self.draft is None else f"tokens drafted by {self.draft.path}, "
        return (
            f"{type(self).__name__}: {self.spec.name} of {self.path}, {self.model.count_params():,} weights, "
            f"{drafting}{self.spec.task}; {', '.join(methods)}"
        )

    def __getattr__(self, name: str) -> Any:
        if name in _MAIN_METHODS and "spec" in vars(self):
            raise AttributeError(
                f"A {self.spec.task} model such as {self.spec.name} has no `{name}`. This run is {self!r}"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @staticmethod
    def spec_of(path: str | os.PathLike[str]) -> ModelSpec:
        """Returns the spec of the model in a work directory.

        Args:
            path: The work directory.

        Raises:
            InputError: If it is not a work directory, or its model has an unknown name.
        """
        return get_spec(WorkDir(path).read_config()["model"]["name"])

    def _load_model(self, workdir: WorkDir) -> keras.Model:
        try:
            workdir.check_model()
        except InputError as error:
            raise InputError(f"{error} If there are checkpoints, training.train --resume restores it.") from None
        try:
            model = keras.saving.load_model(workdir.model, compile=False)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{workdir.model} is not a model of this version of the zoo: {reason}") from error
        return model if model.dtype_policy.name == "float32" else self._in_float32(model)

    def _in_float32(self, low_precision_model: keras.Model) -> keras.Model:
        """Returns a float32 model with the weights of a model of lower precision."""
        options = {name: value for name, value in self.config["model"].items() if name != "name"}
        model = create_model(self.spec.name, dtype="float32", **options)
        for variable, value in zip(model.weights, low_precision_model.weights, strict=True):
            variable.assign(keras.ops.cast(value, "float32"))
        return model

    @property
    def members(self) -> Sequence["Run"]:
        """The members of an `EnsembleRun`; for other runs, the run itself."""
        return [self]

    def reloaded(self) -> "Run":
        """Loads the run again from its files, with separate weights and without a draft model."""
        return type(self)(self.path)

    def with_draft(self, draft: "Run") -> Self:
        """Returns a run with the same model, whose tokens another one drafts if the option `draft_length` is not 0.

        Greedy results and samples stay the same. Decoding is faster if the draft model is much faster and often right,
        such as a student with one layer that was trained on the output of this model (see `training.distill`).

        Args:
            draft: The run of a Transformer of the same task with the same tokenizers, except for their languages.

        Raises:
            InputError: If it cannot draft tokens for this model.
        """
        if not isinstance(draft, Run):
            raise InputError(f"`draft` must be a run, such as zoo.load returns. Received: {draft!r}.")
        if self.spec.task not in ("seq2seq", "language_model") or draft.spec.task != self.spec.task:
            raise InputError(
                "A draft model is for translators and language models, and must be of the same task. "
                f"Received: {draft.path}, a {draft.spec.task} model, for {self.path}, a {self.spec.task} model."
            )
        check_draft(draft.model, self.model)
        identities, others = (
            {name: tokenizer.with_around(Around()).identity() for name, tokenizer in run.tokenizer_files().items()}
            for run in (self, draft)
        )
        if identities != others:
            # The first name of each of several equal tokenizers.
            names = {identity: name for name, identity in reversed(identities.items())}.values()
            files = ",".join(f"file:{WorkDir(self.path).tokenizer(name)}.json" for name in identities if name in names)
            raise InputError(
                f"{draft.path} cannot draft for {self.path}, because their tokenizers differ. Train it with "
                f"--set data.tokenizer={files}"
            )
        run = copy.copy(self)
        run.draft, run._predictors = draft, {}
        return run

    @property
    def draft_model(self) -> keras.Model | None:
        """The model that drafts tokens, or `None`."""
        return None if self.draft is None else self.draft.model

    def tokenizer_files(self) -> dict[str, Tokenizer]:
        """Returns the tokenizers by the name of their file."""
        names: dict[str, Tokenizer] = self.tokenizers._asdict()
        return names

    @property
    def reader(self) -> Tokenizer:
        """The tokenizer of the model's input."""
        tokenizer: Tokenizer = self.tokenizers[0]
        return tokenizer

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts as the model reads them.

        Args:
            texts: The texts.

        Raises:
            InputError: If `texts` is one string.
        """
        raise NotImplementedError

    def embed(self, texts: Sequence[str], contextual: bool = True) -> list[tuple[list[str], np.ndarray]]:
        """Returns the tokens of each text and a vector for each token.

        Args:
            texts: The texts.
            contextual: Whether to return contextual vectors, as computed by the encoder (in a language model, from a
                token and those before it), instead of rows of the embedding table.

        Returns:
            A list of `(tokens, vectors)` with vectors float32 [S, D].

        Raises:
            InputError: If `texts` is one string.
        """
        method = self.model.represent if contextual else self.model.embed
        return [(self.reader.pieces(row), self._vectors(method, row)) for row in self.ids(texts)]

    def _vectors(self, method: Callable[[np.ndarray], Any], row: list[int]) -> np.ndarray:
        """Returns the result of a method of the model for one row of ids."""
        vectors: np.ndarray = keras.ops.convert_to_numpy(method(np.array([row], "int32")))[0]
        return vectors

    def _attention_of(self, method: Callable[[np.ndarray], Any], texts: Sequence[str]) -> list[TextAttention]:
        """Returns the tokens of each text and the weights [layers, heads, T, T] from a method of the model."""
        return [TextAttention((self.reader.pieces(row), self._vectors(method, row))) for row in self.ids(texts)]

    def compare(self, word: str, texts: Sequence[str], neighbours: int = 5) -> Comparison:
        """Compares the contextual vectors of one word in several texts.

        Args:
            word: The word, in any case; its first occurrence in each text is used. The vector of a word of several
                tokens is their mean.
            texts: The texts.
            neighbours: Number of nearest other words, among all texts, to return for each text.

        Raises:
            InputError: If `texts` is one string or empty, or the word is not in one of them as the model reads them.
        """
        neighbours = _NEIGHBOURS.checked("neighbours", neighbours)
        texts = as_texts(texts)
        rows = self.ids(texts)
        if not rows:
            raise InputError("`texts` must contain at least one text. Received: none.")
        vectors = [self._vectors(self.model.represent, row) for row in rows]
        return compare_word(word, texts, rows, vectors, self.reader, neighbours)

    def explore(self, texts: Sequence[str], **options: Any) -> Page:
        """Returns the attention explorer for texts: a page for notebooks that can also be saved as one file.

        Args:
            texts: The texts.
            **options: For translators `beam_size`, the number of translations of each text, and the options of
                `translate`; for language models the options of `generate`.

        Raises:
            InputError: If `texts` is one string or empty, an option is out of range, or the task is sentence encoding.

        Example:
            run.explore(["14 juillet 1989"]).save("attention.html")
        """
        texts = as_texts(texts)
        return Page([self._view(text, **options) for text in texts])

    def _view(self, text: str) -> View:
        """Returns the explorer's view of one text; a subclass may take options."""
        raise NotImplementedError

    def _check_kind(self, kind: str) -> None:
        """Checks that the model has a kind of attention.

        Raises:
            InputError: If it does not; the message lists the kinds that it has.
        """
        kinds = self.model.attention_kinds
        if kind not in kinds:
            available = f"It has: {', '.join(kinds)}." if kinds else "It has no attention."
            raise InputError(f"{self.spec.name} has no attention of the kind {kind!r}. {available}")

    def _predictor(self, key: Hashable, make: Callable[[], keras.Model]) -> Predictor:
        """Returns the cached predictor of a key, or a new one; tracing takes seconds, and a traced graph megabytes."""
        predictor = self._predictors.pop(key, None) or Predictor(make())
        self._predictors[key] = predictor  # in the order of their last uses
        while len(self._predictors) > MAX_PREDICTORS:
            self._predictors.pop(next(iter(self._predictors)), None)
        return predictor

    @property
    def _static_shapes(self) -> bool:
        return bool(keras.backend.backend() == "jax")  # JAX compiles for every new shape.

    def _in_batches(
        self, rows: Sequence[list[int]], batch_size: int, max_width: int | None
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yields indices of rows of similar length, and those rows as one padded array.

        This reduces padding, and decoding a batch takes as long as its longest row. The array may have more rows than
        there are indices.
        """
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            batch = [rows[index] for index in indices]
            width = self._width(batch)
            yield indices, pad(batch, min(width, max_width or width), batch_size if self._static_shapes else None)

    def _predict(
        self,
        predictor: Predictor,
        rows: Sequence[list[int]],
        batch_size: int,
        inputs: Callable[[list[int], np.ndarray], Inputs],
        max_width: int | None = None,
    ) -> list[Any]:
        """Returns the model's outputs for each row, in order.

        `inputs` returns the model's inputs from the indices of rows and the padded rows. `max_width` limits the
        width of arrays where widths are rounded up to reduce the number of shapes.

        Raises:
            InputError: If `batch_size` is not a positive integer.
        """
        batch_size = _BATCH_SIZE.checked("batch_size", batch_size)
        batches = list(self._in_batches(rows, batch_size, max_width))[::-1]  # the longest first
        results: list[Any] = [None] * len(rows)
        outputs = predictor.predict_batches([inputs(*batch) for batch in batches])
        for (indices, _), output in zip(batches, outputs, strict=True):
            for position, index in enumerate(indices):
                results[index] = keras.tree.map_structure(operator.itemgetter(position), output)
        return results

    def _pad_like(self, batch: np.ndarray, rows: list[list[int]]) -> np.ndarray:
        """Returns rows as an array with as many rows as the batch, at least one token wide."""
        return pad(rows, self._width(rows), len(batch))

    def _width(self, rows: list[list[int]]) -> int:
        """Returns the width of an array for these rows, at least 1; rounded up on backends with static shapes."""
        width = max(1, *map(len, rows))
        return -(-width // 16) * 16 if self._static_shapes else width


def cut_texts(texts: Sequence[str], from_end: bool = False) -> list[str]:
    """Returns texts cut to at most `MAX_TEXT_BYTES`; a character that is cut in two becomes U+FFFD.

    With `from_end`, the end of a text remains instead of its beginning.
    """
    remaining = slice(-MAX_TEXT_BYTES, None) if from_end else slice(MAX_TEXT_BYTES)

    def cut(text: str) -> str:
        if 4 * len(text) <= MAX_TEXT_BYTES:  # no character has more bytes
            return text
        return without_surrogates(text).encode("utf-8")[remaining].decode("utf-8", "replace")

    return [cut(text) for text in texts]


def read_texts(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[list[int]]:
    """Returns the ids of whole texts, see `Tokenizer.whole`, cut at `limit` tokens."""
    return [tokenizer.whole(row, limit) for row in tokenizer.encode(cut_texts(texts))]


def as_texts(texts: Any, name: str = "texts") -> list[str]:
    """Converts texts to strings: a list, an array, a column of a table or a tensor, of strings or bytes in UTF-8.

    Args:
        texts: The texts.
        name: The name of the argument, for the error.

    Raises:
        InputError: If it is a single string, a dictionary or a table, or an element is not a text; the message contains
            its row.
    """
    if hasattr(texts, "numpy"):
        texts = texts.numpy()
    if hasattr(texts, "tolist"):
        texts = texts.tolist()
    # Iteration over a table, which has `columns`, or over a dictionary yields only names.
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable) or hasattr(texts, "columns"):
        kind = "a single string" if isinstance(texts, (str, bytes)) else type(texts).__name__
        raise InputError(f"`{name}` must be a list of strings. Received {kind}: {texts!r}.")
    return [_as_text(text, row, name) for row, text in enumerate(texts)]


def _as_text(text: Any, row: int, name: str) -> str:
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"`{name}` must be text in UTF-8. Received in row {row}: {text[:40]!r}, with the byte "
                f"0x{text[error.start]:02x} at {error.start}."
            ) from None
    if not isinstance(text, str):
        raise InputError(f"`{name}` must be strings, or bytes in UTF-8. Received in row {row}: {text!r:.80}.")
    return text
