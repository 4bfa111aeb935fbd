"""The steps of an attention layer as the parts of a diagram, derived from a call with symbolic tensors."""

import re
from typing import Any

import keras

from zoo.errors import InputError
from zoo.inspection import graph
from zoo.inspection.architecture import Group, Part
from zoo.inspection.recording import symbolic_steps
from zoo.inspection.steps import shape_text
from zoo.inspection.symbols import symbolic_arguments
from zoo.layers import BaseAttention

_INPUTS = ("query", "value", "key")  # in the order of the arguments
_LENGTH = 997  # of queries and keys; no layer uses this number otherwise, and it is printed as T
_OF_SCORES = ("scores", "weights", "weighted_sum")


class AttentionSteps:
    """The steps of a built attention layer in the order of their computation.

    Attributes:
        parts: The inputs and the steps, referred to by their indices.
        groups: The steps of each head, if there are several heads.
    """

    def __init__(self, layer: BaseAttention) -> None:
        if not layer.built:
            raise InputError(f"{type(layer).__name__} is not built: call it first, or its `build` with shapes.")
        self.parts: list[Part] = []
        self.groups: list[Group] = []
        self._places: dict[str, int] = {}  # the index of the last part with a name
        self._drawn: set[int] = set()  # ids of the tensors that are parts
        self._origins: dict[int, frozenset[int]] = {}  # the parts that compute a tensor, by the tensor's id
        inputs = symbolic_arguments(layer, _LENGTH, None, batch=1)
        with graph.without_traces(layer):
            steps = sorted(symbolic_steps(layer, inputs, {}), key=lambda step: "query" not in step[0])
            heads = getattr(layer, "num_heads", 1)
            names = [name for name, _, _ in steps]
            in_heads = names.index("concatenation") if heads > 1 and "concatenation" in names else 0
            if in_heads:
                self.groups.append(Group("each head", times=heads))
            for name, tensor in zip(_INPUTS, inputs, strict=False):
                part = Part(f"input: {name}", _shape(tensor), "input", frozenset(), frozenset({name}), ())
                self._add(name, part, tensor)
            if "key" not in self._places:
                self._places["key"] = self._places["value"]
            seen: set[int] = set()
            for number, (name, formula, tensor) in enumerate(steps):
                (tensor, *_) = keras.tree.flatten(tensor)
                self._step(name, formula, tensor, seen, (0,) if number < in_heads else ())

    def _step(self, name: str, formula: str, tensor: Any, seen: set[int], groups: tuple[int, ...]) -> None:
        for node in graph.new_nodes(tensor, seen):
            origins = self._origins_of(node.input_tensors)
            self._origins.update((id(output), origins) for output in node.outputs)
        if id(tensor) in self._drawn:
            return
        # Some steps are computed only for the record; their inputs are the names in their formulas.
        named = {self._places[word] for word in re.findall(r"\w+", formula) if word in self._places}
        origins = frozenset(named) or self._origins_of([tensor])
        kind = "attention" if name.endswith(_OF_SCORES) else "other"
        inputs = frozenset().union(*(self.parts[number].inputs for number in origins))
        part = Part(name.replace("_", " "), f"{formula}, {_shape(tensor)}", kind, origins, inputs, groups)
        self._add(name, part, tensor)

    def _add(self, name: str, part: Part, tensor: Any) -> None:
        self.parts.append(part)
        self._places[name] = len(self.parts) - 1
        self._origins[id(tensor)] = frozenset({len(self.parts) - 1})
        self._drawn.add(id(tensor))

    def _origins_of(self, tensors: Any) -> frozenset[int]:
        return frozenset().union(*(self._origins.get(id(tensor), frozenset()) for tensor in tensors))


def _shape(tensor: Any) -> str:
    """Returns the shape without the batch axis, with T for the length."""
    return shape_text(tensor.shape[1:]).replace(str(_LENGTH), "T")
