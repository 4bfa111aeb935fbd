"""Symbolic tensors for calling a built layer or model."""

from typing import Any

import keras

from zoo.errors import InputError
from zoo.inspection.counting import SYMBOL
from zoo.layers import AttentionRNN, BaseAttention
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.shared.base import ZooModel


def symbolic_arguments(layer: Any, query_length: int, value_length: int | None, batch: int) -> list[Any]:
    """Returns symbolic tensors of these lengths as the arguments of a call of a layer or model."""
    values = query_length if value_length is None else value_length
    if isinstance(layer, Seq2SeqModel):
        return [{"source": SYMBOL((batch, values), "int32"), "target": SYMBOL((batch, query_length), "int32")}]
    if isinstance(layer, ZooModel):
        inputs = {"tokens": (None, None)}
    elif isinstance(layer, keras.Model) and getattr(layer, "inputs", None):
        inputs = {tensor.name: tensor.shape for tensor in layer.inputs}
    else:
        inputs = _built_shapes(layer)
        if isinstance(layer, BaseAttention) and len(inputs) == 1:  # built for self-attention alone
            (own,) = inputs.values()
            inputs = {"query": own, "value": own}
    has_value = any(name.startswith(_VALUE_NAMES) for name in inputs)
    if value_length not in (None, query_length) and not has_value:
        raise InputError(
            f"{type(layer).__name__} has only one input sequence: omit `value_length`. "
            f"Received: query_length={query_length}, value_length={value_length}."
        )
    symbols = []
    for name, shape in inputs.items():
        length = values if name.startswith(_VALUE_NAMES) else query_length
        if isinstance(layer, (ZooModel, keras.layers.Embedding)):
            symbols.append(SYMBOL((batch, length), "int32"))
        elif isinstance(layer, keras.Model):
            full_shape = (batch, *(length if size is None else size for size in shape[1:]))
            symbols.append(SYMBOL(full_shape, next(tensor.dtype for tensor in layer.inputs if tensor.name == name)))
        else:
            symbols.append(SYMBOL((batch, length, *shape[2 if len(shape) > 2 else 1 :]), layer.compute_dtype))
    if isinstance(layer, ZooModel):
        return [{"tokens": symbols[0]}]
    return [symbols] if isinstance(layer, keras.Model) and len(symbols) > 1 else symbols


_VALUE_NAMES = ("value", "key", "memory")


def _built_shapes(layer: Any) -> dict[str, Any]:
    """Returns the shapes with which a layer was built, by the names of the arguments of its call."""
    config = layer.get_build_config() or {}
    shapes = config.get("shapes_dict") or {"inputs": config.get("input_shape")}
    if isinstance(layer, keras.layers.Embedding):
        return {"inputs": (None, None)}
    shapes = {name.removesuffix("_shape"): shape for name, shape in shapes.items() if shape is not None}
    if isinstance(layer, AttentionRNN):
        shapes.setdefault("memory", (None, None, layer.cell.memory_dim))
    if not shapes:
        raise InputError(
            f"{type(layer).__name__} does not store the shapes with which it was built: call its `build` with shapes "
            "such as (None, None, 512)."
        )
    return shapes
