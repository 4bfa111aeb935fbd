"""Causal attention by a state, a matrix for each head: products within chunks, a recurrence between chunks.

`S_t = exp(g_t) ⊙ S_{t−1} + k_t v_tᵀ` and `o_t = q_tᵀ S_t`, with g ≤ 0, at a cost of T + S. No difference of cumulative
sums of logarithms is computed, so that no factor overflows and no precision is lost at any length.
"""

from keras import ops

from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.core.loops import scan_states
from zoo.layers.execution.plan import has_loops
from zoo.layers.positions.base import consecutive
from zoo.row_selection import take


def attend_by_state(query, key, value, log_decay, start, before, size):
    """Returns the outputs o [B, N, T, V], and the state after the last key [B, N, M, V].

    A query after the last key reads the last state, a query before the first key the state `before`.

    Args:
        query: [B, N, T, M]; like all tensors here in float32 or wider.
        key: [B, N, S, M].
        value: [B, N, S, V].
        log_decay: g, [1 or B, N, S, 1 or M].
        start: Position of the first query, an integer or a scalar tensor.
        before: State before the first key, [B, N, M, V], or `None` for zeros.
        size: Keys in a chunk.
    """
    length, keys = ops.shape(query)[-2], ops.shape(key)[-2]
    size = max(1, min(size, keys)) if isinstance(keys, int) else size
    key, value, log_decay = (_chunks(tensor, size) for tensor in (key, value, log_decay))
    states = _states(key, value, log_decay, before)  # [B, N, C + 1, M, V]
    blocks = _query_blocks(length, start, size)
    query = blocks.cut_rows(query)  # [B, N, C', K, M]
    count = ops.shape(key)[-3]
    indices = blocks.first_keys() // size
    # Blocks of queries before the first key or after the last one have no chunk of keys; their index C selects zeros.
    chunks = ops.where(ops.logical_and(indices >= 0, indices < count), indices, count)
    key, value, log_decay = (_take_chunks(tensor, chunks) for tensor in (key, value, log_decay))
    pairs = _decayed_products(query, key, log_decay)  # [B, N, C', K, K]
    earlier = ops.matmul(
        query * ops.exp(ops.cumsum(log_decay, axis=-2)), take(states, ops.clip(indices, 0, count), axis=2)
    )
    return blocks.join_rows(ops.matmul(pairs, value) + earlier, length), states[:, :, -1]


def decaying_sums(terms, log_decay, before, size):
    """Returns `c_t = exp(g_t) ⊙ c_{t−1} + a_t` for all positions, [B, T, D], and for the last one, [B, D].

    Args:
        terms: a, [B, T, D]; like all tensors here in float32 or wider.
        log_decay: g, at most 0, [B, T, D].
        before: State before the first position, [B, D], or `None` for zeros.
        size: Positions in a chunk.
    """
    length = ops.shape(terms)[-2]
    if isinstance(length, int) and length == 0:
        return terms, ops.sum(terms, axis=-2) if before is None else before
    if not has_loops(ops.shape(terms)):
        sums = ops.sum(_decays(log_decay) * terms[..., None, :, :], axis=-2)
        if before is not None:
            sums = sums + ops.exp(ops.cumsum(log_decay, axis=-2)) * before[:, None]
        return sums, sums[:, -1]
    size = min(size, length) if isinstance(length, int) else size
    terms, log_decay = _chunks(terms, size), _chunks(log_decay, size)  # [B, C, K, D]
    own = ops.sum(_decays(log_decay) * terms[..., None, :, :], axis=-2)
    decay = ops.exp(ops.cumsum(log_decay, axis=-2))  # since the beginning of the chunk
    states, last = scan_states(
        lambda state, inputs: inputs[0] * state + inputs[1],
        ops.zeros_like(own[:, 0, 0]) if before is None else before,
        [ops.moveaxis(tensor[:, :, -1], 1, 0) for tensor in (decay, own)],
    )
    sums = own + decay * ops.moveaxis(states, 0, 1)[:, :, None]
    batch, count, rows, width = ops.shape(sums)
    return ops.reshape(sums, (batch, count * rows, width))[:, :length], last


def inverse_of_corrections(key, betas):
    """Returns `(I + A)⁻¹`, `A = tril(diag(β) K Kᵀ, −1)`, [..., K, K], for keys [..., K, M] and β [..., K, 1].

    For its use in the delta rule see `new_values`.
    """
    if key.shape[-2] == 1:  # every step of decoding
        return ops.ones_like(betas)
    positions = ops.arange(ops.shape(key)[-2], dtype="int32")
    products = ops.matmul(betas * key, ops.swapaxes(key, -1, -2))
    lower = ops.where(positions < positions[:, None], products, ops.zeros_like(products))
    identity = ops.cast(ops.equal(positions, positions[:, None]), key.dtype)
    return ops.solve_triangular(lower + identity, ops.zeros_like(products) + identity, lower=True)


def new_values(key, value, betas, before, size):
    """Returns u [B, N, S, V], the values of the delta rule, `uₜ = βₜ (vₜ − Sₜ₋₁ᵀ kₜ)`, `Sₜ = Sₜ₋₁ + kₜ uₜᵀ`.

    Args:
        key: [B, N, S, M].
        value: [B, N, S, V].
        betas: β, [B, N, S, 1].
        before: State before the first key, [B, N, M, V], or `None` for zeros.
        size: Keys in a chunk.
    """
    keys = ops.shape(key)[-2]
    size = max(1, min(size, keys)) if isinstance(keys, int) else size
    key, value, betas = (_chunks(tensor, size) for tensor in (key, value, betas))
    inverse = inverse_of_corrections(key, betas)  # [B, N, C, K, K]
    own, recall_keys = ops.matmul(inverse, betas * value), ops.matmul(inverse, betas * key)

    def step(state, inputs):
        key, own, recall_keys = inputs
        return state + ops.matmul(ops.swapaxes(key, -1, -2), own - ops.matmul(recall_keys, state))

    first = ops.zeros_like(ops.matmul(ops.swapaxes(key, -1, -2), value)[:, :, 0]) if before is None else before
    states, _ = scan_states(step, first, [ops.moveaxis(tensor, 2, 0) for tensor in (key, own, recall_keys)])
    values = own - ops.matmul(recall_keys, ops.moveaxis(states, 0, 2))
    *leading, count, rows, width = ops.shape(values)
    return ops.reshape(values, (*leading, count * rows, width))[..., :keys, :]


def _query_blocks(length, start, size):
    """Returns blocks of T queries, the first at `start`, that begin at multiples of the size."""
    first = start // size * size
    skipped = start - first
    if isinstance(start, int):
        count = (length + skipped + size - 1) // size
        count = max(count, 1) if isinstance(count, int) else ops.maximum(count, 1)
    else:
        count = (length + size - 2) // size + 1
    return QueryBlocks(count, size, size, first, row_positions=consecutive(0, size), skipped=skipped)


def _chunks(tensor, size):
    """Returns [..., C, K, D] from [..., S, D], C ≥ 1, with zeros after the last row."""
    length = ops.shape(tensor)[-2]
    count = (length + size - 1) // size
    count = max(count, 1) if isinstance(count, int) else ops.maximum(count, 1)
    blocks = QueryBlocks(count, size, size, first_key=0, row_positions=None)
    chunks = blocks.cut_rows(tensor)
    if isinstance(length, int) and length == count * size:
        return chunks
    return ops.where(blocks.key_positions()[..., None] < length, chunks, ops.zeros_like(chunks))


def _take_chunks(tensor, indices):
    """Returns the chunks at these indices, [..., C', K, D] from [..., C, K, D]; index C selects zeros."""
    zeros = ops.zeros_like(tensor[..., :1, :, :])
    return take(ops.concatenate([tensor, zeros], axis=-3), indices, axis=-3)


def _states(key, value, log_decay, before):
    """Returns the states before each chunk and after the last one, [B, N, C + 1, M, V]."""
    later = ops.concatenate([log_decay[..., 1:, :], ops.zeros_like(log_decay[..., :1, :])], axis=-2)
    until_end = ops.flip(ops.cumsum(ops.flip(later, axis=-2), axis=-2), axis=-2)  # from each key to the chunk's end
    updates = ops.matmul(ops.swapaxes(key * ops.exp(until_end), -1, -2), value)  # [B, N, C, M, V]
    totals = ops.exp(ops.sum(log_decay, axis=-2))[..., None]  # [1 or B, N, C, 1 or M, 1]
    before = ops.zeros_like(updates[:, :, 0]) if before is None else before
    states, last = scan_states(
        lambda state, inputs: inputs[0] * state + inputs[1],
        before,
        [ops.moveaxis(tensor, 2, 0) for tensor in (totals, updates)],
    )
    return ops.concatenate([ops.moveaxis(states, 0, 2), last[:, :, None]], axis=2)


def _decayed_products(query, key, log_decay):
    """Returns `Σ_m q_rm k_jm exp(g_{j+1} + … + g_r)_m` for each row and the keys up to it, [..., K, K], else zeros."""
    decay = _decays(log_decay)
    if log_decay.shape[-1] == 1:
        return ops.matmul(query, ops.swapaxes(key, -1, -2)) * ops.squeeze(decay, axis=-1)
    return ops.sum(query[..., :, None, :] * key[..., None, :, :] * decay, axis=-1)


def _decays(log_decay):
    """Returns `exp(g_{j+1} + … + g_r)` for each row r and j up to it, else zeros, [..., K, K, M] from [..., K, M]."""
    positions = ops.arange(ops.shape(log_decay)[-2], dtype="int32")
    is_later, is_causal = (
        compare(positions[:, None], positions)[..., None] for compare in (ops.greater, ops.greater_equal)
    )
    between = ops.where(is_later, log_decay[..., :, None, :], ops.cast(0.0, log_decay.dtype))
    decay = ops.exp(ops.cumsum(between, axis=-3))
    return ops.where(is_causal, decay, ops.zeros_like(decay))
