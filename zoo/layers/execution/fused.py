"""The backend's own kernel, which has no weights to return."""

from keras import ops


def attend(layer, query, memory, visible, bias, seed, names):
    """Returns `output` and `seen`; nothing is dropped."""
    output = layer.fused_output(query, memory, visible, bias)
    seen = None if visible.is_plainly_causal else visible.seen()
    # Where there is nothing to attend to, maybe in one head only, a kernel attends to everything alike.
    output = output if seen is None else ops.where(seen, output, ops.cast(0.0, output.dtype))
    return {"output": output, "seen": seen}
