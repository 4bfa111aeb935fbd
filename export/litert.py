"""Converts models to LiteRT (TensorFlow Lite), for phones and small machines, with TensorFlow's own converter.

The file computes logits or vectors from token ids; the tokenizers are separate files. Batch sizes, text lengths and the
capacity of a cache are dynamic.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from export.parts import Part, model_parts, traced_feeds
from zoo.errors import InputError


def litert_model(model: keras.Model, task: str) -> bytes:
    """Returns a model as the content of a `.tflite` file.

    The signatures are `encode` and `step` for a translator, `step` for a language model and `serving_default` for other
    models. `step` returns the logits of the next token and the next state. It takes the last token, the previous state
    (initially zeros, of any capacity) and, for a translator, the outputs of `encode`.

    Args:
        model: The model.
        task: The model's task; see `zoo.registry`.

    Raises:
        InputError: If the backend is not TensorFlow, the model needs operations that LiteRT lacks (such as loops over
            tokens), or its initial state is not zero. Recurrent layers have both problems.
    """
    if keras.backend.backend() != "tensorflow":
        raise InputError(f"litert: needs KERAS_BACKEND=tensorflow. Received: {keras.backend.backend()}.")
    holder = tf.Module()
    parts = model_parts(model, task, "state").items()
    names = {"model": "serving_default"}
    signatures = {
        names.get(name, name): _constant_graph(part.function, _input_specs(model, part)) for name, part in parts
    }
    holder.functions = [*signatures.values()]
    with tempfile.TemporaryDirectory() as folder, _captured_stderr() as read_stderr:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(holder, folder, signatures, options)
        try:
            return bytes(tf.lite.TFLiteConverter.from_saved_model(folder, [*signatures]).convert())
        except Exception as error:  # the converter raises a private class
            text = f"{error} {read_stderr()}"
    raise InputError(f"litert: {type(model).__name__} cannot be converted: {_reason(text)}.")


def _reason(text: str) -> str:
    """Returns the reason of a failed conversion as one line, given the error and the converter's log."""
    if "ensor list" in text or "TensorList" in text:
        return "LiteRT does not support loops over tokens, which recurrent layers need"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return (errors or lines or ["no reason was given"])[0][:300].rstrip(".")


def _input_specs(model: keras.Model, part: Part) -> dict[str, tf.TensorSpec]:
    """Returns the specifications of the inputs of a part; sizes that vary are `None`."""
    feeds, others = traced_feeds("litert", model, part)
    specs = {}
    for name, array in feeds.items():
        sizes = zip(array.shape, others[name].shape, strict=True)
        specs[name] = tf.TensorSpec([size if size == other else None for size, other in sizes], array.dtype)
    return specs


def _constant_graph(function: Callable[..., dict[str, Any]], inputs: Mapping[str, tf.TensorSpec]) -> Any:
    """Returns a function of tensors by name with constant weights and only slices that LiteRT supports."""
    named = {key: tf.TensorSpec(spec.shape, spec.dtype, name=key) for key, spec in inputs.items()}
    traced = tf.function(lambda **tensors: function(**tensors), autograph=False).get_concrete_function(**named)
    frozen = convert_variables_to_constants_v2(traced)
    graph = without_new_axes(frozen.graph.as_graph_def())
    whole = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    feeds = {tensor.op.name: whole.graph.get_tensor_by_name(tensor.name) for tensor in frozen.inputs}
    fetches = (whole.graph.get_tensor_by_name(tensor.name) for tensor in frozen.outputs)
    outputs = dict(zip(sorted(traced.structured_outputs), fetches, strict=True))

    pruned = whole.prune([*feeds.values()], outputs)
    constant = tf.function(lambda **tensors: pruned(*(tensors[key] for key in feeds)), autograph=False)
    return constant.get_concrete_function(**{key: named[key] for key in feeds})


@contextlib.contextmanager
def _captured_stderr() -> Iterator[Callable[[], str]]:
    """Redirects standard error, to which the converter writes, to a file; yields a function that returns its text."""
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(2)
        os.dup2(file.fileno(), 2)

        def read() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield read
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def without_new_axes(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Returns a graph in which `ExpandDims` operations replace the axes that slices add, as in `x[:, None]`.

    LiteRT's slices cannot add axes if sizes are unknown, and its converter does not rewrite such slices.
    """
    result = tf.compat.v1.GraphDef(versions=graph.versions, library=graph.library)
    constants = {node.name: node for node in graph.node if node.op == "Const"}
    for node in graph.node:
        adds = node.op == "StridedSlice" and node.attr["new_axis_mask"].i
        if adds and all(name in constants for name in node.input[1:]):
            places = [tf.make_ndarray(constants[name].attr["value"].tensor) for name in node.input[1:]]
            _add_slice(result, node, places)
        else:
            result.node.add().CopyFrom(node)
    return result


def _add_slice(graph: tf.compat.v1.GraphDef, node: Any, places: Sequence[np.ndarray]) -> None:
    """Adds a slice with these begins, ends and strides to a graph, followed by its new axes."""

    def marked(mask: str) -> list[bool]:
        return [bool(node.attr[mask].i >> place & 1) for place in range(len(places[0]))]

    def constant(value: Any, name: str) -> str:
        added = graph.node.add(op="Const", name=f"{node.name}/{name}")
        added.attr["dtype"].type = tf.int32.as_datatype_enum
        added.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
        return str(added.name)

    new, rest, shrunk = marked("new_axis_mask"), marked("ellipsis_mask"), marked("shrink_axis_mask")
    sliced_axes = [place for place, is_new in enumerate(new) if not is_new]
    sliced = graph.node.add(op="StridedSlice", name=f"{node.name}/sliced")
    sliced.input.append(node.input[0])
    for values, name in zip(places, ("begin", "end", "strides"), strict=True):
        sliced.input.append(constant(values[sliced_axes].astype(np.int32), name))
    sliced.attr["T"].CopyFrom(node.attr["T"])
    sliced.attr["Index"].type = tf.int32.as_datatype_enum
    for mask in ("begin_mask", "end_mask", "ellipsis_mask", "shrink_axis_mask"):
        bits = marked(mask)
        sliced.attr[mask].i = sum(bits[place] << number for number, place in enumerate(sliced_axes))
    # The places that have an axis in the result; those after `...` are counted from the end.
    axes = [place for place in range(len(new)) if new[place] or not shrunk[place]]
    middle = axes.index(rest.index(True)) if any(rest) else len(axes)
    before = [number for number, place in enumerate(axes) if new[place] and number < middle]
    behind = [number - len(axes) for number, place in enumerate(axes) if new[place] and number > middle]
    tensor, order = sliced.name, [*before, *reversed(behind)]
    for number, axis in enumerate(order):
        is_last = number == len(order) - 1
        added = graph.node.add(op="ExpandDims", name=node.name if is_last else f"{node.name}/expanded_{number}")
        added.input.extend([tensor, constant(axis, f"axis_{number}")])
        added.attr["T"].CopyFrom(node.attr["T"])
        added.attr["Tdim"].type = tf.int32.as_datatype_enum
        tensor = added.name
