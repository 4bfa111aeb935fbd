"""The parts of a model and their connections, derived from a call with symbolic tensors."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras

from zoo.inspection import graph
from zoo.inspection.counting import SYMBOL
from zoo.layers import (
    AttentionPooling,
    AttentionRNN,
    BaseAttention,
    BidirectionalEncoder,
    FeedForward,
    GatedConvolutionBlock,
    GatedFeedForward,
    LearnedPositions,
    LightweightConvolution,
    MultiHeadAttention,
)
from zoo.layers.attention.self_mixing import SelfMixing
from zoo.layers.blocks.transformer_base import TransformerBlock
from zoo.layers.visibility.base import Both, Either
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.shared.pooling import WordDropout
from zoo.models.shared.positions import InputPositions


@dataclass(frozen=True)
class Part:
    """A part of a model, a box of its diagram.

    Args:
        title: Its title.
        detail: Its sizes.
        kind: `"input"`, `"embedding"`, `"attention"`, `"recurrent"`, `"feed_forward"`, `"norm"`, `"add"` or `"other"`.
        before: Indices of the parts whose results it uses; in a recurrence also of later parts.
        inputs: Names of the model's inputs on which it depends.
        groups: Indices of the groups that contain it, outermost first.
    """

    title: str
    detail: str
    kind: str
    before: frozenset[int]
    inputs: frozenset[str]
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """A group of parts, a frame in the diagram.

    Args:
        title: Its title.
        times: Number of consecutive groups that are equal except for their weights.
    """

    title: str
    times: int = 1


class Architecture:
    """The parts of a built model in the order of their computation.

    Attributes:
        parts: The parts, referred to by their indices.
        groups: The groups, referred to by their indices.
    """

    def __init__(self, model: keras.Model) -> None:
        self.parts: list[Part] = []
        self.groups: list[Group] = []
        self._origins: dict[int, frozenset[int]] = {}  # the parts that compute a tensor, by the tensor's id
        self._tensors: list[Any] = []  # references, so that ids stay unique
        self._signatures: dict[int, str] = {}  # of groups that are blocks
        attentions = [layer for layer in model._flatten_layers() if isinstance(layer, BaseAttention)]
        # A model may call the projections of an attention layer before the layer itself.
        self._inside_attention = {
            id(part) for layer in attentions for part in layer._flatten_layers(include_self=False)
        }
        lengths = {"source": 7, "target": 5} if isinstance(model, Seq2SeqModel) else {"tokens": 7}
        inputs = {name: SYMBOL((1, length), "int32") for name, length in lengths.items()}
        for name, tensor in inputs.items():
            self._set_origins(tensor, self._add(Part(name, "ids", "input", frozenset(), frozenset({name}), ())))
        with graph.without_traces(model):
            results = graph.inline(model, model.call, (inputs,), {})
            self._walk(results, ())

    def _add(self, part: Part) -> frozenset[int]:
        self.parts.append(part)
        return frozenset({len(self.parts) - 1})

    def _set_origins(self, nested: Any, origins: frozenset[int]) -> None:
        for tensor in keras.tree.flatten(nested):
            if isinstance(tensor, SYMBOL):
                self._tensors.append(tensor)
                self._origins[id(tensor)] = origins

    def _origins_of(self, nested: Any) -> frozenset[int]:
        tensors = [leaf for leaf in keras.tree.flatten(nested) if isinstance(leaf, SYMBOL) and leaf.dtype != "bool"]
        return frozenset().union(*(self._origins.get(id(tensor), frozenset()) for tensor in tensors))

    def _inputs_of(self, origins: frozenset[int]) -> frozenset[str]:
        return frozenset().union(*(self.parts[number].inputs for number in origins if number != _STATES))

    def _walk(self, results: Any, groups: tuple[int, ...]) -> None:
        """Adds the parts that compute these results."""
        for node in graph.new_nodes(results, set()):
            args, kwargs = node.arguments.args, node.arguments.kwargs
            origins = self._origins_of((args, kwargs))
            layer = node.operation
            if not isinstance(layer, keras.layers.Layer):
                if type(layer).__name__ == "Add" and self._is_residual(args):
                    part = Part("+", "", "add", origins, self._inputs_of(origins), groups)
                    origins = frozenset({self.parts.index(part)}) if part in self.parts else self._add(part)
                self._set_origins(node.outputs, origins)
            elif isinstance(layer, (TransformerBlock, GatedConvolutionBlock)):
                self._walk_block(layer, node, groups)
            elif isinstance(layer, AttentionRNN):
                self._walk_recurrence(layer, node, groups)
            elif not origins or id(layer) in self._inside_attention or _is_identity(layer):
                self._set_origins(node.outputs, origins)
            else:
                title, detail, kind = describe(layer, args, kwargs)
                part = Part(title, detail, kind, origins, self._inputs_of(origins), groups)
                self._set_origins(node.outputs, self._add(part))

    def _is_residual(self, args: Any) -> bool:
        """Returns whether a sum is a residual connection: of two results of the same shape from different parts."""
        tensors = [leaf for leaf in keras.tree.flatten(args) if isinstance(leaf, SYMBOL)]
        if len(tensors) != 2 or tensors[0].shape != tensors[1].shape:
            return False
        first, second = (self._origins_of(tensor) for tensor in tensors)
        return bool(first and second and first != second)

    def _copy_of(self, nested: Any) -> Any:
        """Returns new symbolic tensors with the same origins."""
        copies = graph.fresh(nested)
        for tensor, copy in zip(keras.tree.flatten(nested), keras.tree.flatten(copies), strict=True):
            if isinstance(tensor, SYMBOL):
                self._set_origins(copy, self._origins.get(id(tensor), frozenset()))
        return copies

    def _walk_block(self, layer: Any, node: Any, groups: tuple[int, ...]) -> None:
        origins = self._origins_of((node.arguments.args, node.arguments.kwargs))
        last = next((self.parts[number].groups for number in sorted(origins, reverse=True)), ())
        signature = _signature(layer)
        repeated = next((group for group in last if self._signatures.get(group) == signature), None)
        if repeated is not None:  # equal to the previous block, whose parts represent both
            self.groups[repeated] = dataclasses.replace(self.groups[repeated], times=self.groups[repeated].times + 1)
            inside = [number for number, part in enumerate(self.parts) if repeated in part.groups]
            self._set_origins(node.outputs, frozenset(inside[-1:]))
            return
        self.groups.append(Group(""))
        number = len(self.groups) - 1
        self._signatures[number] = signature
        args, kwargs = self._copy_of((node.arguments.args, node.arguments.kwargs))
        results = graph.inline(layer, layer.call, args, kwargs)
        self._walk(results, (*groups, number))
        for output, result in zip(node.outputs, keras.tree.flatten(results), strict=True):
            self._set_origins(output, self._origins_of(result))

    def _walk_recurrence(self, layer: Any, node: Any, groups: tuple[int, ...]) -> None:
        arguments = inspect.signature(layer.call).bind(*node.arguments.args, **node.arguments.kwargs).arguments
        self.groups.append(Group("each position in turn"))
        groups = (*groups, len(self.groups) - 1)
        cell, inputs = layer.cell, arguments["inputs"]
        memory = graph.inline(cell, cell.project_memory, (self._copy_of(arguments["memory"]),), {})
        self._walk(memory, groups)
        step = SYMBOL((inputs.shape[0], inputs.shape[-1]), inputs.dtype)
        self._set_origins(step, self._origins_of(inputs))
        states = [SYMBOL((inputs.shape[0], size), cell.compute_dtype) for size in cell.own_state_sizes]
        first = self._origins_of(arguments.get("initial_state"))
        self._set_origins(states, first | {_STATES})
        kwargs = {"memory": self._copy_of(memory), "memory_mask": graph.fresh(arguments.get("memory_mask"))}
        output, _, states = graph.inline(cell, cell.advance, (step, states), kwargs)
        begin = len(self.parts)
        self._walk((output, states), groups)
        new_states = frozenset(number for number in self._origins_of(states) if number >= begin)
        inputs_around = self._inputs_of(self._origins_of(inputs))
        for number, part in enumerate(self.parts[begin:], begin):
            before = part.before - {_STATES} | (new_states - {number} if _STATES in part.before else frozenset())
            self.parts[number] = dataclasses.replace(part, before=before, inputs=part.inputs | inputs_around)
        origins = self._origins_of(output)
        # Only at the first position does the output depend on the initial states.
        self._set_origins(node.outputs, origins - first - {_STATES} | new_states if _STATES in origins else origins)


_STATES = -1
"""Placeholder for the parts that compute the previous states, until they are known."""


def _is_identity(layer: Any) -> bool:
    """Returns whether a layer is the identity at inference."""
    is_dropout = isinstance(layer, (keras.layers.Dropout, WordDropout))
    return is_dropout or (isinstance(layer, InputPositions) and layer.positions is None)


def _signature(layer: Any) -> str:
    """Returns a text that is equal for blocks that differ only in names and weights."""
    return re.sub(r"'name': '[^']*'", "", f"{type(layer).__name__} {layer.get_config()}")


def describe(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    """Returns title, detail and kind of a layer, given the arguments of its call."""
    for kind, rule in _RULES.items():
        if isinstance(layer, kind):
            return rule(layer, args, kwargs)
    if hasattr(layer, "cell_type") and hasattr(layer, "num_layers"):
        direction = "bidirectional " if isinstance(layer, BidirectionalEncoder) else ""
        return f"{direction}{layer.cell_type.upper()}", _stack(layer.num_layers, layer.units), "recurrent"
    units = getattr(layer, "units", None)
    return _words(layer), f"→ {units}" if units else "", "other"


def _words(layer: Any) -> str:
    """Returns the name of a layer's class in words, such as "max pooling"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", type(layer).__name__).lower()


def _attention(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    value = args[1] if len(args) > 1 else kwargs.get("value")
    if value is not None and value is args[0]:
        title = "masked self-attention" if kwargs.get("use_causal_mask") else "self-attention"
    else:
        title = "cross-attention"
    return title, ", ".join(_attention_details(layer)), "attention"


def _attention_details(layer: Any) -> Iterator[str]:
    if isinstance(layer, MultiHeadAttention):
        heads = f"{layer.num_heads} head{'s' * (layer.num_heads > 1)} of {layer.key_dim}"
        yield heads if layer.memory_heads == layer.num_heads else f"{heads}, {layer.memory_heads} of keys and values"
    own_compare = type(layer).compare is not MultiHeadAttention.compare
    if isinstance(layer, MultiHeadAttention) and own_compare:
        yield _words(layer).removesuffix(" attention")
    elif getattr(layer, "score", None) is not None:
        yield _words(layer.score).removesuffix(" score")
    if getattr(layer, "window", None):
        yield f"window {layer.window}"
    if getattr(layer, "block_size", None):
        yield f"blocks of {layer.block_size}"
    if getattr(layer, "visibility", None) is not None:
        yield f"visibility: {_rule(layer.visibility)}"
    if getattr(layer, "positions", None) is not None:
        yield _words(layer.positions)


def _rule(rule: Any) -> str:
    """Returns a rule of visibility in words, such as "sliding window or global tokens"."""
    if isinstance(rule, (Both, Either)):
        return f"{_rule(rule.first)} {'and' if isinstance(rule, Both) else 'or'} {_rule(rule.second)}"
    return _words(rule)


def _mixing(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    if isinstance(layer, LightweightConvolution):
        causal = "causal " * layer.is_causal
        return f"{causal}{_words(layer)}", f"{layer.num_heads} heads, width {layer.width}", "attention"
    return _words(layer), "", "recurrent"


def _pooling(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    return "attention pooling", ", ".join(_attention_details(layer.attention)), "attention"


def _embedding(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    if kwargs.get("reverse"):
        return "logits", "by the table of the embedding", "other"
    return "embedding", f"→ {layer.output_dim}", "embedding"


def _positions(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    how = "concatenated" if getattr(layer.positions, "concatenate", False) else "added"
    title = "learned positions" if isinstance(layer.positions, LearnedPositions) else _words(layer.positions)
    return title, how, "embedding"


def _feed_forward(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    size = args[0].shape[-1]
    title = "gated feed-forward" if isinstance(layer, GatedFeedForward) else "feed-forward"
    return title, f"{size} → {layer.intermediate_dim} → {size}", "feed_forward"


def _bidirectional(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    inner = layer.forward_layer
    return f"bidirectional {type(inner).__name__}", f"{inner.units} units", "recurrent"


def _stack(num_layers: int, units: int) -> str:
    return f"{num_layers} layers of {units}" if num_layers > 1 else f"{units} units"


def _recurrent(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    cells = getattr(layer, "cells", [layer])
    return type(cells[0]).__name__.replace("Cell", " cell"), _stack(len(cells), cells[0].units), "recurrent"


def _dense(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    activation, kind = layer.activation.__name__, "feed_forward" if layer.name == "convolution" else "other"
    return layer.name.replace("_", " "), f"→ {layer.units}" + f", {activation}" * (activation != "linear"), kind


def _convolution(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    return "convolution", f"width {layer.kernel_size[0]}, → {layer.filters}", "feed_forward"


def _norm(layer: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
    return _words(layer).replace("ization", "").replace("rmsnormal", "RMS norm").replace("normal", "norm"), "", "norm"


_RULES: dict[type, Callable[[Any, Any, Any], tuple[str, str, str]]] = {
    BaseAttention: _attention,
    SelfMixing: _mixing,
    AttentionPooling: _pooling,
    InputPositions: _positions,
    FeedForward: _feed_forward,
    GatedFeedForward: _feed_forward,
    keras.layers.Bidirectional: _bidirectional,
    keras.layers.Embedding: _embedding,
    keras.layers.RNN: _recurrent,
    keras.layers.GRUCell: _recurrent,
    keras.layers.LSTMCell: _recurrent,
    keras.layers.StackedRNNCells: _recurrent,
    keras.layers.Dense: _dense,
    keras.layers.Conv1D: _convolution,
    keras.layers.LayerNormalization: _norm,
    keras.layers.RMSNormalization: _norm,
}
