"""Takes the path that the plan chose; two of the paths are here: all queries at once, and the backend's own kernel."""

from keras import ops

from zoo.layers.execution.chunks import attend_in_chunks, attend_in_windows
from zoo.layers.execution.plan import plan, record
from zoo.layers.execution.tiles import attend_in_tiles


def attend_densely(layer, query, memory, visible, bias, seed, names):
    """Returns the results of `layer.attend_rows`, all of them: a graph computes none that nobody reads."""
    return layer.attend_rows(query, memory, visible, bias, seed)


def attend_fused(layer, query, memory, visible, bias, seed, names):
    """Returns `output` and `seen`; nothing is dropped."""
    output = layer.fused_output(query, memory, visible, bias)
    seen = None if visible.is_plainly_causal else visible.seen()
    # Where there is nothing to attend to, maybe in one head only, a kernel attends to everything alike.
    output = output if seen is None else ops.where(seen, output, ops.cast(0.0, output.dtype))
    return {"output": output, "seen": seen}


PATHS = {
    "dense": attend_densely,
    "chunks": attend_in_chunks,
    "tiles": attend_in_tiles,
    "windows": attend_in_windows,
    "fused": attend_fused,
}


def attend(layer, query, memory, visible, bias, return_attention_scores, training):
    """Returns the results of `BaseAttention.attend`."""
    drops = training and layer.dropout > 0
    chosen = plan(layer, query.shape, memory["value"].shape[-2], visible, bias is not None, drops)
    record(chosen)
    names = ["output", "weights"] if return_attention_scores else ["output"]
    if visible.may_hide_all:
        names.append("seen")
    seed = layer.dropout_layer.seed_generator.next() if drops else None
    results = PATHS[chosen.path](layer, query, memory, visible, bias, seed, names)
    if return_attention_scores and "weights" not in results:  # they are computed besides, and change nothing
        results["weights"] = weights_alone(layer, query, memory, visible, bias)
    return results


def weights_alone(layer, query, memory, visible, bias):
    """Returns the weights, before dropout."""
    chosen = plan(layer, query.shape, memory["value"].shape[-2], visible, bias is not None, drops=False, weights=True)
    return PATHS[chosen.path](layer, query, memory, visible, bias, None, ["weights"])["weights"]
