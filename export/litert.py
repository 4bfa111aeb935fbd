"""Models as LiteRT has them (TensorFlow Lite), for phones and small machines, by the converter of TensorFlow itself.

What goes from ids to numbers is converted; tokenizers stand beside it. Batches, texts and the room of a cache may have
any size.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from zoo.errors import InputError

# Sizes by which axes are told apart: of a batch, of a source, and of the room in a cache.
_SIZES = [(2, 7, 11), (3, 8, 13)]


class Part(NamedTuple):
    """A function of a model that becomes a file.

    Args:
        function: Called with tensors by name; returns tensors by name.
        inputs: What they are.
    """

    function: Callable[..., dict[str, Any]]
    inputs: dict[str, tf.TensorSpec]


def litert_model(model: keras.Model, task: str) -> bytes:
    """Returns the file of a model, whose signatures have tensors by name.

    They are `encode` and `step` of a translator, `step` of a language model and `serving_default` of others. A `step`
    gives the logits of the next symbol, and the state for the next step: beside the last symbol it takes the state of
    the step before, at first zeros of any room, and for a translator what `encode` gave.

    Args:
        model: The model.
        task: What it does; see `zoo.registry`.

    Raises:
        InputError: If it needs operations that LiteRT has not, as loops over symbols do, or its state does not begin
            with zeros: both are so with recurrent layers. Or on another backend than TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise InputError(f"litert: needs KERAS_BACKEND=tensorflow. Received: {keras.backend.backend()}.")
    holder = tf.Module()
    signatures = {name: _constant_graph(*part) for name, part in _parts(model, task).items()}
    holder.functions = [*signatures.values()]
    with tempfile.TemporaryDirectory() as folder, _quiet() as said:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(holder, folder, signatures, options)
        try:
            return bytes(tf.lite.TFLiteConverter.from_saved_model(folder, [*signatures]).convert())
        except Exception as error:  # its own, of a private class
            text = f"{error} {said()}"
    raise InputError(f"litert: {type(model).__name__} cannot be converted: {_reason(text)}.")


def _reason(text: str) -> str:
    """Returns in one line why a conversion failed, given all that was said of it."""
    if "ensor list" in text or "TensorList" in text:
        return "LiteRT has no loops over symbols, as recurrent layers have them"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return (errors or lines or ["no reason was given"])[0][:300].rstrip(".")


def _parts(model: keras.Model, task: str) -> dict[str, Part]:
    ids = tf.TensorSpec([None, None], tf.int32)
    if task == "seq2seq":
        return {"encode": _encoder(model, ids), "step": _decoder_step(model)}
    if task == "language_model":
        return {"step": _language_model_step(model)}
    output = "logits" if task == "classifier" else "vectors"
    return {
        "serving_default": Part(lambda tokens: {output: model({"tokens": tokens}, training=False)}, {"tokens": ids})
    }


def _encoder(model: keras.Model, ids: tf.TensorSpec) -> Part:
    return Part(lambda source: _named("memory", model.encode(source, training=False)), {"source": ids})


def _decoder_step(model: keras.Model) -> Part:
    def begun(batch: int, length: int, room: int) -> tuple[Any, Any]:
        memory = model.encode(np.full([batch, length], 4, "int32"), training=False)
        return memory, model.initial_state(memory, room)

    (memory, state), later = begun(*_SIZES[0]), begun(*_SIZES[1])
    if any(np.any(tensor) for tensor in keras.tree.flatten(state)):
        raise InputError(f"litert: is for states that begin with zeros, which that of {type(model).__name__} does not.")

    def step(last: Any, **given: Any) -> dict[str, Any]:
        tensors = list(given.values())
        count = len(keras.tree.flatten(memory))
        own = keras.tree.pack_sequence_as(memory, tensors[:count])
        logits, *_, after = model.decode_step(last, keras.tree.pack_sequence_as(state, tensors[count:]), own)
        return {"logits": logits, **_named("state", after)}

    inputs = _free("memory", memory, later[0]) | _free("state", state, later[1])
    return Part(step, {"last": tf.TensorSpec([None], tf.int32), **inputs})


def _language_model_step(model: keras.Model) -> Part:
    state, later = (model.initial_state(batch, room) for batch, _, room in _SIZES)

    def step(last: Any, **given: Any) -> dict[str, Any]:
        logits, after = model.decode_step(last, keras.tree.pack_sequence_as(state, list(given.values())))
        return {"logits": logits, **_named("state", after)}

    return Part(step, {"last": tf.TensorSpec([None], tf.int32), **_free("state", state, later)})


def _named(prefix: str, tensors: Any) -> dict[str, Any]:
    """Returns the tensors of a structure by names that say where they stand in it, such as `state_caches_0_key`."""
    flat, _ = zip(*keras.tree.flatten_with_path(tensors), strict=True) if keras.tree.flatten(tensors) else ((), ())
    names = ["_".join(map(str, (prefix, *path))) for path in flat]
    return dict(zip(names, keras.tree.flatten(tensors), strict=True))


def _free(prefix: str, tensors: Any, others: Any) -> dict[str, tf.TensorSpec]:
    """Returns what tensors are, by name, with those sizes free that others of the same structure have otherwise."""
    specs = {}
    pairs = zip(_named(prefix, tensors).items(), keras.tree.flatten(others), strict=True)
    for (name, first), second in pairs:
        one, two = tf.convert_to_tensor(first), tf.convert_to_tensor(second)
        shape = [size if size == other else None for size, other in zip(one.shape, two.shape, strict=True)]
        specs[name] = tf.TensorSpec(shape, one.dtype)
    return specs


def _constant_graph(function: Callable[..., dict[str, Any]], inputs: Mapping[str, tf.TensorSpec]) -> Any:
    """Returns a function of tensors by name whose weights are constants, and whose slices LiteRT has."""
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
def _quiet() -> Iterator[Callable[[], str]]:
    """Keeps what the converter writes to standard error; yields a function that returns it."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)

        def said() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def without_new_axes(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Returns a graph in which no slice adds axes, as `x[:, None]` does: an `ExpandDims` for each comes after it.

    LiteRT's slices add none where sizes are unknown, and its converter leaves such slices as they are.
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
    """Adds a slice to a graph, of begins, ends and strides, and then the axes that it adds."""

    def marked(mask: str) -> list[bool]:
        return [bool(node.attr[mask].i >> place & 1) for place in range(len(places[0]))]

    def constant(value: Any, name: str) -> str:
        added = graph.node.add(op="Const", name=f"{node.name}/{name}")
        added.attr["dtype"].type = tf.int32.as_datatype_enum
        added.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
        return str(added.name)

    new, rest, shrunk = marked("new_axis_mask"), marked("ellipsis_mask"), marked("shrink_axis_mask")
    kept = [place for place, is_new in enumerate(new) if not is_new]
    sliced = graph.node.add(op="StridedSlice", name=f"{node.name}/sliced")
    sliced.input.append(node.input[0])
    for values, name in zip(places, ("begin", "end", "strides"), strict=True):
        sliced.input.append(constant(values[kept].astype(np.int32), name))
    sliced.attr["T"].CopyFrom(node.attr["T"])
    sliced.attr["Index"].type = tf.int32.as_datatype_enum
    for mask in ("begin_mask", "end_mask", "ellipsis_mask", "shrink_axis_mask"):
        bits = marked(mask)
        sliced.attr[mask].i = sum(bits[place] << number for number, place in enumerate(kept))
    # The places that have an axis in the result; after `...` they count from the end.
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
