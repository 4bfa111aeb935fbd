"""The functions into which a model is split for runtimes that lack loops: an encoder, and one step of a decoder."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from zoo.errors import InputError
from zoo.layers import BaseAttention

TRACED = [(2, 7, 11), (3, 8, 13)]
"""Two choices of batch size, length and capacity of a cache (see `Part`); a size that differs is dynamic."""


class Part(NamedTuple):
    """A function of a model that becomes a graph.

    Args:
        function: Takes tensors by name and returns tensors by name.
        feeds: Returns arrays by name, given a batch size, a number of tokens and the capacity of a cache beyond
            `least_capacity`.
        least_capacity: The largest window of the model's self-attention. The caches of smaller capacity have another
            structure.
    """

    function: Callable[..., dict[str, Any]]
    feeds: Callable[[int, int, int], dict[str, np.ndarray]]
    least_capacity: int = 0


def traced_feeds(kind: str, model: keras.Model, part: Part) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns the inputs of a part at both sizes of `TRACED`.

    Args:
        kind: The format, for the error.
        model: The model, for the error.
        part: One of its parts.

    Raises:
        InputError: If the initial state is not zero, with which a caller begins.
    """
    feeds, others = (part.feeds(*sizes) for sizes in TRACED)
    if any(np.any(array) for name, array in feeds.items() if name.startswith("state_")):
        raise InputError(f"{kind}: the initial state must be zero. The state of {type(model).__name__} is not.")
    return feeds, others


def named_tensors(prefix: str, tensors: Any) -> dict[str, Any]:
    """Returns the tensors of a nested structure by their paths in it, such as `state_caches_0_key`."""
    return {"_".join(map(str, (prefix, *path))): tensor for path, tensor in keras.tree.flatten_with_path(tensors)}


def model_parts(model: keras.Model, task: str, next_state: str) -> dict[str, Part]:
    """Returns `encode` and `step` of a translator, `step` of a language model, and `model` of others.

    `step` takes the last tokens [B] as `last`, the outputs of `encode` (`memory_…`) and the previous state (`state_…`);
    it returns the `logits` [B, V] of the next tokens and the next state.

    Args:
        model: The model.
        task: The model's task; see `zoo.registry`.
        next_state: Prefix of the names of the next state.
    """
    if task == "seq2seq":
        return {"encode": _encoder(model), "step": _decoder_step(model, next_state)}
    if task == "language_model":
        return {"step": _language_model_step(model, next_state)}
    output = "logits" if task == "classifier" else "vectors"
    return {
        "model": Part(
            lambda tokens: {output: model({"tokens": tokens}, training=False)},
            lambda batch, length, capacity: {"tokens": _ids(batch, length, model.vocab_size)},
        )
    }


def _ids(batch: int, length: int, vocab_size: int) -> np.ndarray:
    """Returns random ids [B, T] of rows of different lengths, the first of which is the longest, padded with 0."""
    random = np.random.default_rng(batch * length)
    lengths = np.maximum(length - np.arange(batch), 1)
    ids = random.integers(1, vocab_size, (batch, length))
    return np.where(np.arange(length) < lengths[:, None], ids, 0).astype("int32")


def _arrays(tensors: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(ops.convert_to_numpy(tensor)) for name, tensor in tensors.items()}


def _encoder(model: keras.Model) -> Part:
    return Part(
        lambda source: named_tensors("memory", model.encode(source, training=False)),
        lambda batch, length, capacity: {"source": _ids(batch, length, model.source_vocab_size)},
    )


def _least_capacity(model: keras.Model) -> int:
    """Returns the largest number of positions that a cache of a window contains; 0 without windows."""
    attention = [layer for layer in model._flatten_layers() if isinstance(layer, BaseAttention)]
    return max((layer.kept_first + layer.reach for layer in attention if layer.reach is not None), default=0)


def _decoder_step(model: keras.Model, next_state: str) -> Part:
    least = _least_capacity(model)

    def memory_and_state(batch: int, length: int, capacity: int) -> tuple[Any, Any]:
        memory = model.encode(_ids(batch, length, model.source_vocab_size), training=False)
        return memory, model.initial_state(memory, least + capacity)

    memory, state = memory_and_state(*TRACED[0])
    count = len(keras.tree.flatten(memory))

    def step(last: Any, **inputs: Any) -> dict[str, Any]:
        tensors = list(inputs.values())
        packed = keras.tree.pack_sequence_as(memory, tensors[:count])
        logits, *_, after = model.decode_step(last, keras.tree.pack_sequence_as(state, tensors[count:]), packed)
        return {"logits": logits, **named_tensors(next_state, after)}

    def feeds(batch: int, length: int, capacity: int) -> dict[str, np.ndarray]:
        memory, state = memory_and_state(batch, length, capacity)
        last = _ids(batch, 1, model.target_vocab_size)[:, 0]
        return {"last": last, **_arrays(named_tensors("memory", memory) | named_tensors("state", state))}

    return Part(step, feeds, least)


def _language_model_step(model: keras.Model, next_state: str) -> Part:
    (batch, _, capacity), least = TRACED[0], _least_capacity(model)
    state = model.initial_state(batch, least + capacity)

    def step(last: Any, **inputs: Any) -> dict[str, Any]:
        logits, after = model.decode_step(last, keras.tree.pack_sequence_as(state, list(inputs.values())))
        return {"logits": logits, **named_tensors(next_state, after)}

    def feeds(batch: int, length: int, capacity: int) -> dict[str, np.ndarray]:
        last = _ids(batch, 1, model.vocab_size)[:, 0]
        return {"last": last, **_arrays(named_tensors("state", model.initial_state(batch, least + capacity)))}

    return Part(step, feeds, least)
