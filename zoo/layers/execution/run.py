"""Takes the path that the plan says."""

from zoo.layers.execution import chunks, dense, fused, tiles, windows
from zoo.layers.execution.plan import plan, record

PATHS = {
    "dense": dense.attend,
    "chunks": chunks.attend,
    "tiles": tiles.attend,
    "windows": windows.attend,
    "fused": fused.attend,
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
