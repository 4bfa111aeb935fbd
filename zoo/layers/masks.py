"""Boolean masks: how they are checked, combined and applied.

Axes: B batch, N heads, T query length, S key/value length. True means "may attend".
"""

from keras import backend, ops


def check_mask(mask, name: str, ranks: tuple[int, ...]):
    """Returns `mask` as a boolean tensor.

    Args:
        mask: Boolean or integer tensor (non-zero means "may attend"), or `None`.
        name: Argument name for the error message.
        ranks: Ranks that are allowed.

    Raises:
        ValueError: If the mask is floating point (an additive mask is a bias) or has another rank.
    """
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    if backend.is_float_dtype(backend.standardize_dtype(mask.dtype)):
        raise ValueError(
            f"`{name}` must be boolean (True = may attend); additive masks go to `attention_bias`. "
            f"Received: dtype={backend.standardize_dtype(mask.dtype)}."
        )
    if len(mask.shape) not in ranks:
        raise ValueError(
            f"`{name}` must have rank {' or '.join(map(str, ranks))}. Received: shape={tuple(mask.shape)}."
        )
    return ops.cast(mask, "bool")


def causal_mask(query_length, key_length, offset=None):
    """Returns the boolean causal mask [T, S]: query t sees the keys up to `offset + t`.

    Args:
        query_length: T, an integer or a scalar tensor.
        key_length: S, likewise.
        offset: Position of the first query among the keys. Default: S − T, the queries stand at the end.
    """
    offset = key_length - query_length if offset is None else offset
    query_positions = ops.expand_dims(ops.arange(query_length), 1) + offset
    return ops.expand_dims(ops.arange(key_length), 0) <= query_positions


def combine_masks(
    lengths, query_mask=None, value_mask=None, key_mask=None, attention_mask=None, causal_offset=None, heads=False
):
    """Returns the conjunction of all masks, or `None` where nothing is masked.

    Args:
        lengths: `(T, S)`.
        query_mask: [B, T].
        value_mask: [B, S].
        key_mask: [B, S].
        attention_mask: [B, T, S], and with `heads` also [B, N, T, S].
        causal_offset: Position of the first query among the keys; `None` for no causal mask.
        heads: Whether the scores have a head axis.

    Returns:
        Boolean tensor that broadcasts to [B, T, S], or to [B, N, T, S] with `heads`.
    """
    parts = []
    if (query_mask := check_mask(query_mask, "query_mask", (2,))) is not None:
        parts.append(query_mask[:, :, None])
    for name, mask in (("value_mask", value_mask), ("key_mask", key_mask)):
        if (mask := check_mask(mask, name, (2,))) is not None:
            parts.append(mask[:, None, :])
    if causal_offset is not None:
        parts.append(causal_mask(*lengths, causal_offset)[None])
    if (attention_mask := check_mask(attention_mask, "attention_mask", (3, 4) if heads else (3,))) is not None:
        parts.append(attention_mask)
    combined = None
    for part in parts:
        part = part[:, None] if heads and len(part.shape) == 3 else part
        combined = part if combined is None else ops.logical_and(combined, part)
    return combined


def _softmax(scores):
    # Keras' softmax warns of an axis of size 1, but a single key is nothing strange: a decoder starts with one.
    if scores.shape[-1] == 1:
        return ops.exp(ops.log_softmax(scores, axis=-1))
    return ops.softmax(scores, axis=-1)


def masked_softmax(scores, mask=None):
    """Returns the softmax of `scores` over the last axis, restricted to `mask`, computed in float32 or wider.

    A row without any allowed position is all zeros, with finite gradients.

    Args:
        scores: [..., T, S].
        mask: Boolean tensor that broadcasts to `scores`, or `None`.

    Returns:
        Weights [..., T, S] in the dtype of `scores`.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    wide = backend.result_type(dtype, "float32")
    scores = ops.cast(scores, wide)
    if mask is None:
        return ops.cast(_softmax(scores), dtype)
    # A finite fill keeps the softmax of an empty row finite; the second `where` makes that row zero.
    weights = _softmax(ops.where(mask, scores, ops.cast(-1e30, wide)))
    return ops.cast(ops.where(mask, weights, ops.zeros_like(weights)), dtype)
