"""What the runs of all tasks have in common."""

import operator
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from zoo.errors import InputError
from zoo.explorer import Page, View
from zoo.inference.answers import TextAttention
from zoo.inference.comparison import Comparison, compare_word
from zoo.inference.predictor import Predictor
from zoo.options import Option
from zoo.registry import ModelSpec, create_model, get_spec
from zoo.text import Tokenizer, load_tokenizers, without_surrogates
from zoo.vocabulary import pad
from zoo.workdir import WorkDir

MAX_TEXT_BYTES = 1 << 15
"""How much of a text is read, in bytes of UTF-8: ids are cut as well, but only after all that is read was tokenized."""

_BATCH_SIZE = Option(64, int, "Texts that the model reads together.", minimum=1)
_NEIGHBOURS = Option(5, int, "How many neighbours.", minimum=0)

_ASKED = ("translate", "nbest", "classify", "generate", "embed_text", "score", "attention", "embed", "explore")
"""Methods of runs that people ask first."""

Inputs = dict[str, np.ndarray]
"""Inputs of a model: arrays with the batch first."""


class Run:
    """A trained work directory.

    Attributes:
        model: The `keras.Model`, in float32.
        config: The resolved configuration, a dict.
        spec: The `ModelSpec`.
        path: The work directory.
        tokenizers: A tuple with a field for each tokenizer.

    Args:
        path: The work directory.

    Raises:
        InputError: If it is not a work directory, or its training has not finished.
    """

    tokenizers_type: type[Any]

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
        methods = [name for name in _ASKED if hasattr(type(self), name)]
        return (
            f"{type(self).__name__}: {self.spec.name} of {self.path}, {self.model.count_params():,} weights, "
            f"{self.spec.task}; {', '.join(methods)}"
        )

    def __getattr__(self, name: str) -> Any:
        if name in _ASKED and "spec" in vars(self):
            raise AttributeError(f"A {self.spec.task} such as {self.spec.name} has no `{name}`. This run is {self!r}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @staticmethod
    def spec_of(path: str | os.PathLike[str]) -> ModelSpec:
        """Returns the spec of the model in a work directory.

        Args:
            path: The work directory.

        Raises:
            InputError: If it is no work directory, or its model has an unknown name.
        """
        return get_spec(WorkDir(path).read_config()["model"]["name"])

    def _load_model(self, workdir: WorkDir) -> keras.Model:
        try:
            workdir.check_model()
        except InputError as error:
            raise InputError(f"{error} With checkpoints, training.train --resume writes it anew.") from None
        try:
            model = keras.saving.load_model(workdir.model, compile=False)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{workdir.model} is not a model of this version of the zoo: {reason}") from error
        return model if model.dtype_policy.name == "float32" else self._in_float32(model)

    def _in_float32(self, kept: keras.Model) -> keras.Model:
        """Returns a model that is kept in fewer bits as one that computes in float32."""
        options = {name: value for name, value in self.config["model"].items() if name != "name"}
        model = create_model(self.spec.name, dtype="float32", **options)
        for variable, value in zip(model.weights, kept.weights, strict=True):
            variable.assign(keras.ops.cast(value, "float32"))
        return model

    @property
    def members(self) -> Sequence["Run"]:
        """The runs that answer together: this one alone, but in an `EnsembleRun`."""
        return [self]

    def reloaded(self) -> "Run":
        """Returns the run anew from its files, with weights of its own."""
        return type(self)(self.path)

    def tokenizer_files(self) -> dict[str, Tokenizer]:
        """Returns the tokenizers by the name of their file."""
        names: dict[str, Tokenizer] = self.tokenizers._asdict()
        return names

    @property
    def reader(self) -> Tokenizer:
        """The tokenizer of what the model reads."""
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
            contextual: Whether vectors are those that the model makes of the tokens in their context (by its encoder;
                a language model knows what is before a token), or the rows of its table of embeddings.

        Returns:
            A list of `(tokens, vectors)` with vectors float32 [S, D].

        Raises:
            InputError: If `texts` is one string.
        """
        method = self.model.represent if contextual else self.model.embed
        return [(self.reader.pieces(row), self._vectors(method, row)) for row in self.ids(texts)]

    def _vectors(self, method: Callable[[np.ndarray], Any], row: list[int]) -> np.ndarray:
        """Returns what a method of the model returns for one row of ids."""
        vectors: np.ndarray = keras.ops.convert_to_numpy(method(np.array([row], "int32")))[0]
        return vectors

    def _attention_of(self, method: Callable[[np.ndarray], Any], texts: Sequence[str]) -> list[TextAttention]:
        """Returns the tokens of each text, and the weights [layers, heads, T, T] that a method of the model returns."""
        return [TextAttention((self.reader.pieces(row), self._vectors(method, row))) for row in self.ids(texts)]

    def compare(self, word: str, texts: Sequence[str], neighbours: int = 5) -> Comparison:
        """Returns how alike the contextual vectors of one word are in several texts.

        Args:
            word: The word, in any case; where a text has it twice, the first counts. The vector of a word of several
                symbols is their mean.
            texts: The texts.
            neighbours: How many of the nearest other words of these texts are named for each text.

        Raises:
            InputError: If `texts` is one string or empty, or the word is not in one of them as the model reads them.
        """
        neighbours = _NEIGHBOURS.checked("neighbours", neighbours)
        rows = self.ids(texts)
        if not rows:
            raise InputError("`texts` must have at least one text. Received: none.")
        vectors = [self._vectors(self.model.represent, row) for row in rows]
        return compare_word(word, texts, rows, vectors, self.reader, neighbours)

    def explore(self, texts: Sequence[str], **options: Any) -> Page:
        """Returns the attention explorer for texts: a page that shows itself in a notebook, or is saved as one file.

        Args:
            texts: The texts.
            **options: Of translators `beam_size`, how many translations of each text, and those of `translate`; of
                language models those of `generate`.

        Raises:
            InputError: If `texts` is one string or empty, or an option is out of range.

        Example:
            run.explore(["14 juillet 1989"]).save("attention.html")
        """
        texts = as_texts(texts)
        return Page([self._view(text, **options) for text in texts])

    def _view(self, text: str) -> View:
        """Returns what the explorer shows of one text; a subclass may take options."""
        raise NotImplementedError

    def _check_kind(self, kind: str) -> None:
        """Checks that the model has a kind of attention.

        Raises:
            InputError: If it has not; those that it has are named.
        """
        kinds = self.model.attention_kinds
        if kind not in kinds:
            known = f"It has: {', '.join(kinds)}." if kinds else "It has no attention."
            raise InputError(f"{self.spec.name} has no attention of the kind {kind!r}. {known}")

    def _predictor(self, key: Hashable, make: Callable[[], keras.Model]) -> Predictor:
        """Returns the predictor of a key, which is made when it is first asked for: tracing takes seconds."""
        if key not in self._predictors:
            self._predictors[key] = Predictor(make())
        return self._predictors[key]

    @property
    def _static_shapes(self) -> bool:
        return bool(keras.backend.backend() == "jax")  # which compiles for every new shape

    def _in_batches(
        self, rows: Sequence[list[int]], batch_size: int, max_width: int | None
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yields the indices of rows of like length, and those rows as one padded array.

        So there is little padding, and a batch of decoding ends when its longest row does. The array may have more
        rows than there are indices.
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
        """Returns what a model makes of each row, in their order.

        `inputs` returns the model's inputs from the indices of rows and those rows, padded. `max_width` is the largest
        width of an array where widths are rounded up, so that shapes are few.

        Raises:
            InputError: If `batch_size` is not a positive integer.
        """
        batch_size = _BATCH_SIZE.checked("batch_size", batch_size)
        batches = list(self._in_batches(rows, batch_size, max_width))[::-1]  # the longest first
        results: list[Any] = [None] * len(rows)
        outputs = predictor.predict_batches([inputs(*batch) for batch in batches])
        for (indices, _), output in zip(batches, outputs, strict=True):
            for place, index in enumerate(indices):
                results[index] = keras.tree.map_structure(operator.itemgetter(place), output)
        return results

    def _pad_like(self, batch: np.ndarray, rows: list[list[int]]) -> np.ndarray:
        """Returns rows as an array with as many rows as the batch, at least one symbol wide."""
        return pad(rows, self._width(rows), len(batch))

    def _width(self, rows: list[list[int]]) -> int:
        """Returns the width of an array for these rows, at least 1; one of few where shapes are to be few."""
        width = max(1, *map(len, rows))
        return -(-width // 16) * 16 if self._static_shapes else width


def cut_texts(texts: Sequence[str], from_end: bool = False) -> list[str]:
    """Returns texts of at most `MAX_TEXT_BYTES`; what is left of a character that is cut in two is U+FFFD.

    With `from_end` the ends are kept rather than the beginnings.
    """
    kept = slice(-MAX_TEXT_BYTES, None) if from_end else slice(MAX_TEXT_BYTES)

    def cut(text: str) -> str:
        if 4 * len(text) <= MAX_TEXT_BYTES:  # no character has more bytes
            return text
        return without_surrogates(text).encode("utf-8")[kept].decode("utf-8", "replace")

    return [cut(text) for text in texts]


def read_texts(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[list[int]]:
    """Returns the ids of whole texts, see `Tokenizer.whole`, cut at `limit` symbols."""
    return [tokenizer.whole(row, limit) for row in tokenizer.encode(cut_texts(texts))]


def as_texts(texts: Any, name: str = "texts") -> list[str]:
    """Returns texts as strings: of a list, an array, a column of a table or a tensor, of strings or of bytes in UTF-8.

    Args:
        texts: The texts.
        name: The name of the argument, for the error.

    Raises:
        InputError: If it is a single string, or something in it is no text; its row is named.
    """
    if hasattr(texts, "numpy"):
        texts = texts.numpy()
    if hasattr(texts, "tolist"):
        texts = texts.tolist()
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
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
