"""Runs the planned path. Two paths are in this module: all queries at once, and the backend's fused kernel."""

import contextlib

from keras import ops

from zoo.layers.core.softmax import trained_softmax
from zoo.layers.execution.chunks import attend_in_chunks, attend_in_windows
from zoo.layers.execution.plan import plan, record
from zoo.layers.execution.tiles import attend_in_tiles


def attend_densely(layer, query, memory, visibility, bias, seed, names):
    """Returns all results of `layer.attend_rows`, for all queries at once; a graph computes only those in use."""
    return layer.attend_rows(query, memory, visibility, bias, seed)


def attend_fused(layer, query, memory, visibility, bias, seed, names):
    """Returns `output` and `any_visible`, computed by the backend's fused kernel, without dropout."""
    output = layer.fused_output(query, memory, visibility, bias)
    any_visible = None if visibility.is_plainly_causal else visibility.any_visible()
    # Where all keys are masked, perhaps in one head only, a kernel attends evenly to all of them.
    output = output if any_visible is None else ops.where(any_visible, output, ops.cast(0.0, output.dtype))
    return {"output": output, "any_visible": any_visible}


PATHS = {
    "dense": attend_densely,
    "chunks": attend_in_chunks,
    "tiles": attend_in_tiles,
    "windows": attend_in_windows,
    "fused": attend_fused,
}


def attend(layer, query, memory, visibility, bias, return_attention_scores, training):
    """Returns the results of `BaseAttention.attend`."""
    drops = training and layer.dropout > 0
    execution = plan(layer, query.shape, memory["value"].shape[-2], visibility, bias is not None, drops)
    record(execution)
    names = ["output", "weights"] if return_attention_scores else ["output"]
    if visibility.may_hide_all:
        names.append("any_visible")
    seed = layer.dropout_layer.seed_generator.next() if drops else None
    with trained_softmax() if training else contextlib.nullcontext():
        results = PATHS[execution.path](layer, query, memory, visibility, bias, seed, names)
    if return_attention_scores and "weights" not in results:  # computed separately, without effect on the output
        results["weights"] = weights_alone(layer, query, memory, visibility, bias)
    return results


def weights_alone(layer, query, memory, visibility, bias):
    """Returns the weights, before dropout."""
    execution = plan(
        layer, query.shape, memory["value"].shape[-2], visibility, bias is not None, drops=False, weights=True
    )
    return PATHS[execution.path](layer, query, memory, visibility, bias, None, ["weights"])["weights"]
