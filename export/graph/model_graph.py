"""The functions from which the signatures of a model are built, for any task."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import tensorflow as tf

from export.graph.dynamic_batching import MAX_BATCH_SIZE
from export.graph.tokenizers import TokenizerGraph, tokenizer_graph
from export.graph.weights import store_weights
from export.graph.xla_buckets import Buckets
from export.options import ExportOptions
from zoo.inference import MAX_TEXT_BYTES, Run
from zoo.vocabulary import END, PAD, START

Method = TypeVar("Method", bound=Callable[..., Any])

TEXT = tf.TensorSpec([None], tf.string)
IDS = tf.TensorSpec([None, None], tf.int32)


def shared(*inputs: tf.TensorSpec) -> Callable[[Method], Method]:
    """Returns a decorator for methods of a `ModelGraph`; `inputs` specifies their tensors.

    All signatures that call such a method share one function of the SavedModel. The time and memory that a server needs
    to load a version, and to prepare each new kind of request, grow with the total size of all functions.
    """

    def decorate(method: Method) -> Method:
        def graph_function(graph: "ModelGraph") -> Any:
            def read_weights_and_call(*tensors: tf.Tensor) -> Any:
                # Each function reads the weights, because tensors of the caller belong to the caller's graph.
                with graph.reading_weights():
                    return method(graph, *tensors)

            return tf.function(read_weights_and_call, input_signature=inputs, autograph=False)

        return cached_property(graph_function)  # type: ignore[return-value]

    return decorate


class ModelGraph:
    """A model with its tokenizers and weights, as functions of tensors; a subclass for each task.

    Attributes:
        model: The Keras model.
        draft: The model that drafts tokens, or `None`; see `zoo.inference.Run.with_draft`.
        options: The options of the export, resolved.
        tokenizers: The tokenizers in the graph, by name.
        weights: The variables that contain the weights.
        reading_weights: Returns a context in which the models read their weights from these variables.
        max_ids: Maximum number of ids of a text.
    """

    max_ids: int

    def __init__(self, run: Run, options: ExportOptions):
        self.model, self.draft, self.options = run.model, run.draft_model, options.resolved(run.model)
        models = [self.model] if self.draft is None else [self.model, self.draft]
        self.weights, self.reading_weights = store_weights(models, options.weights)
        graphs: dict[str, TokenizerGraph] = {}  # by the identity of the tokenizer; equal tokenizers share a graph
        self.tokenizers: dict[str, TokenizerGraph] = {}
        for name, tokenizer in run.tokenizer_files().items():
            identity = tokenizer.identity()
            graphs[identity] = graphs.get(identity) or tokenizer_graph(tokenizer)
            self.tokenizers[name] = graphs[identity]

    def read(self, text: tf.Tensor) -> tf.Tensor:
        """Returns the ids [B, S], S ≥ 1, of texts [B]."""
        raise NotImplementedError

    @property
    def reader(self) -> TokenizerGraph:
        """The tokenizer of the model's input."""
        return next(iter(self.tokenizers.values()))

    def ids(self, text: tf.Tensor) -> tf.Tensor:
        """Returns the ids [B, S], S ≥ 1, of texts [B] for inspection; see `zoo.inference.Run.ids`."""
        return self.read(text)

    def compute(self, ids: tf.Tensor) -> Any:
        """Returns the model's results for ids [B, S]: nested tensors with the batch axis first."""
        raise NotImplementedError

    def compute_fixed(self, ids: tf.Tensor) -> Any:
        """Computes the same as `compute` with tensors of constant sizes, as XLA requires."""
        return self.compute(ids)

    def write(self, ids: tf.Tensor, results: Any) -> dict[str, tf.Tensor]:
        """Returns the outputs of the default signature, given ids and the results of `compute`."""
        raise NotImplementedError

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs of the default signature for texts [B]."""
        ids = self.read(text)
        return self.write(ids, self.compute(ids))

    def compiled_answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the same as `answer`, compiled by XLA."""
        ids = self.read(text)
        return self.write(ids, self.buckets.compiled(self.compute_fixed, otherwise=self.compute)(ids))

    @cached_property
    def buckets(self) -> Buckets:
        """The sizes for which XLA compiles code."""
        return Buckets(self.max_ids, MAX_BATCH_SIZE if self.options.dynamic_batching else None)


def dense(rows: tf.RaggedTensor) -> tf.Tensor:
    """Returns rows as padded ids [B, S], S ≥ 1, also for an empty batch."""
    ids = rows.to_tensor(PAD)
    return tf.pad(ids, [[0, 0], [0, tf.maximum(0, 1 - tf.shape(ids)[1])]], constant_values=PAD)


def trimmed(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids [B, L], L ≥ 1, without the last columns that are padding in every row."""
    width = tf.reduce_max(tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1))
    return ids[:, : tf.maximum(width, 1)]


def first_bytes(text: tf.Tensor) -> tf.Tensor:
    """Returns the first bytes of texts, as many as `zoo.inference` reads."""
    return tf.strings.substr(text, 0, MAX_TEXT_BYTES)


def last_bytes(text: tf.Tensor) -> tf.Tensor:
    """Returns the last bytes of texts, as many as `zoo.inference` reads."""
    first = tf.maximum(tf.strings.length(text) - MAX_TEXT_BYTES, 0)
    return tf.strings.substr(text, first, tf.fill(tf.shape(first), MAX_TEXT_BYTES))


def read_texts(tokenizer: TokenizerGraph, text: tf.Tensor, limit: int) -> tf.Tensor:
    """Returns ids [B, S], S ≥ 1, of whole texts [B], see `zoo.text.Tokenizer.whole`, cut at `limit` tokens."""
    count = tf.shape(text)[0]
    start = [*([START] if tokenizer.has_start else []), *tokenizer.before]
    end = [*([END] if tokenizer.has_end else []), *tokenizer.after]
    rows = tokenizer.encode(first_bytes(text))[:, : limit - len(start) - len(end)]
    around = [[repeated(ids, count)] if ids else [] for ids in (start, end)]
    return dense(tf.concat([*around[0], rows, *around[1]], axis=1))


def repeated(ids: Sequence[int], count: tf.Tensor) -> tf.Tensor:
    """Returns `count` rows of the same ids, int32 [count, N]."""
    return tf.tile(tf.constant([ids], tf.int32), [count, 1])
