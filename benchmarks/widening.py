"""A trained Transformer made as large as another one, without a change of its answers.

Every feature is copied, so that layer normalisation keeps its mean and variance; heads and hidden units are copied or
padded with zeros; further blocks add zero; further tokens have a bias that excludes them. A step then costs as much as
that of a trained model of this size, and drafts are confirmed as often as for the small one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import zoo

EXCLUDED = -1e9  # the bias of further tokens


@dataclass(frozen=True)
class Size:
    """The sizes of a Transformer; the fields are options of models."""

    num_layers: int
    model_dim: int
    num_heads: int
    intermediate_dim: int


OPUS_MT = Size(6, 512, 8, 2048)
OPUS_MT_VOCABULARY = 58_101  # tokens, with the padding


def widened(model: Any, vocabulary: int, size: Size | None = None) -> Any:
    """Returns a larger model with the same answers.

    Args:
        model: A translator with pre-norm, sinusoidal positions and one embedding for everything.
        vocabulary: The number of its tokens, at least those of the model.
        size: Its sizes, each a multiple of the model's or, of the blocks, at least as many. Default: those of the
            model.

    Raises:
        ValueError: For any other model.
    """
    options = model.options
    required = {"normalize_first": True, "positions": "sinusoidal", "output_bias": False, "self_attention": "full"}
    shares = model.source_embedding is model.target_embedding and model.tied_embeddings in ("auto", "all")
    if not shares or any(getattr(options, name) != value for name, value in required.items()):
        raise ValueError(f"A model to widen must share its embeddings and have {required}.")
    size = size or Size(options.num_layers, options.model_dim, options.num_heads, options.intermediate_dim)
    fields = {name: value for name, value in vars(options).items() if not name.endswith("vocab_size")}
    fields |= vars(size) | {"positions": "learned", "output_bias": True, "tied_embeddings": "all"}
    large = zoo.create_model(model.name, source_vocab_size=vocabulary, target_vocab_size=vocabulary, **fields)
    inputs = {name: np.ones((1, 2), np.int32) for name in ("source", "target")}
    large(inputs)
    values = {variable.path.partition("/")[2]: np.array(variable) for variable in model.weights}
    values |= dict.fromkeys(("source_positions", "target_positions"), _sinusoids(model, options.max_length))
    copy = _Copy(options, size, vocabulary)
    for variable in large.weights:
        path = variable.path.partition("/")[2].replace("positions/positions/embeddings", "positions")
        variable.assign(copy.of(path, values.get(path), np.array(variable)))
    return large


def _sinusoids(model: Any, length: int) -> np.ndarray:
    """Returns the vectors that a model adds at its first positions, [length, D]."""
    return np.array(model.target_positions(np.zeros((1, length, model.options.model_dim), np.float32)))[0]


class _Copy:
    """The values of a large model's variables from those of a small one."""

    def __init__(self, options: Any, size: Size, vocabulary: int) -> None:
        self.num_tokens, self.vocabulary = options.target_vocab_size, vocabulary
        self.heads = options.num_heads, size.num_heads
        self.copies = size.model_dim // options.model_dim
        self.head_dims = options.model_dim // options.num_heads, size.model_dim // size.num_heads
        self.hidden = size.intermediate_dim - options.intermediate_dim

    def of(self, path: str, value: np.ndarray | None, initial: np.ndarray) -> np.ndarray:
        """Returns the value of the variable at a path of the large model; `value` is that of the small one."""
        *_, layer, kind = ("", *path.split("/"))
        if path == "output/bias":
            return np.where(np.arange(self.vocabulary) < self.num_tokens, 0.0, EXCLUDED)
        if value is None:  # a further block
            return 0 * initial if layer == "output" else initial
        if layer == "target_embedding":
            value = np.pad(value, ((0, self.vocabulary - self.num_tokens), (0, 0)))
            return self._tiled(value) / self.copies**0.5
        if layer == "decoder_norm":
            return self._tiled(value) / self.copies**0.5
        if layer in ("query", "key", "value"):
            rows = self._of_inputs(value) if kind == "kernel" else value
            factor = (self.head_dims[1] / self.head_dims[0]) ** 0.5 if layer == "query" else 1.0
            return self._in_heads(rows) * factor
        if layer == "output" and "attention" in path:
            return self._tiled(self._in_heads(value.T).T * self.heads[0] / self.heads[1] if kind == "kernel" else value)
        if layer == "intermediate":
            rows = self._of_inputs(value) if kind == "kernel" else value
            return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, self.hidden)])
        if layer == "output" and kind == "kernel":
            return self._tiled(np.pad(value, ((0, self.hidden), (0, 0))))
        return self._tiled(value)

    def _tiled(self, value: np.ndarray) -> np.ndarray:
        """Returns copies of features, the last axis."""
        return np.concatenate([value] * self.copies, axis=-1)

    def _of_inputs(self, kernel: np.ndarray) -> np.ndarray:
        """Returns a kernel for copies of its inputs."""
        return np.concatenate([kernel] * self.copies) / self.copies

    def _in_heads(self, value: np.ndarray) -> np.ndarray:
        """Returns more and larger heads on the last axis: copies, each padded with zeros."""
        (small, large), (narrow, wide) = self.heads, self.head_dims
        heads = value.reshape(*value.shape[:-1], small, narrow)
        heads = heads[..., np.arange(large) % small, :]
        heads = np.pad(heads, [(0, 0)] * (heads.ndim - 1) + [(0, wide - narrow)])
        return heads.reshape(*value.shape[:-1], large * wide)
