"""Queries cut into blocks, and states that go from chunk to chunk, against loops over all positions."""

import numpy as np
import pytest
from keras import ops
from support.layers.contract import random_array, to_numpy

from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.attention.state_chunks import attend_by_state, decaying_sums, new_values
from zoo.layers.positions.base import consecutive

B, N, M, V = 2, 3, 5, 7
SIZES = (3, 100)  # of a chunk


@pytest.mark.parametrize(
    ("queries", "keys", "start", "rows", "window"),
    [(11, 13, 2, 4, 4), (5, 3, 0, 2, 2), (1, 13, 7, 3, 3), (7, 11, 0, 3, 5)],
    ids=str,
)
def test_blocks_of_queries_and_their_windows_of_keys(queries, keys, start, rows, window):
    blocks = QueryBlocks.aligned(queries, start, rows)
    if window != rows:  # a window that begins a key before its block
        blocks = QueryBlocks(-(-queries // rows), rows, window, -1, consecutive(1, rows))
    query, key, pairs = (random_array(shape, 1) for shape in ((B, queries, M), (B, keys, M), (B, queries, keys)))
    cut, windows, cells = (
        to_numpy(each) for each in (blocks.cut_rows(query), blocks.cut_keys(key), blocks.cut_pairs(pairs))
    )
    first, skipped, size = int(blocks.first_key), int(blocks.skipped), blocks.rows
    near = np.zeros((queries, keys), bool)
    for block, row in np.ndindex(blocks.count, size):
        t = block * size + row - skipped
        for column in range(window):
            s = first + block * size + column
            if 0 <= s < keys:
                np.testing.assert_array_equal(windows[:, block, column], key[:, s])
            if 0 <= s < keys and 0 <= t < queries:
                np.testing.assert_array_equal(cells[:, block, row, column], pairs[:, t, s])
                near[t, s] = True
        if 0 <= t < queries:
            np.testing.assert_array_equal(cut[:, block, row], query[:, t])
    np.testing.assert_array_equal(to_numpy(blocks.join_rows(cut, queries)), query)
    np.testing.assert_array_equal(to_numpy(blocks.spread(cells, queries, keys)), pairs * near)


@pytest.mark.parametrize(("each_feature", "begun"), [(False, False), (True, True)], ids=str)
@pytest.mark.parametrize(("queries", "keys", "start"), [(13, 7, -2), (3, 7, 9)], ids=str)
def test_states_are_those_of_the_recurrence(each_feature, begun, queries, keys, start):
    query, key, value = (random_array((B, N, *shape), 1) for shape in ((queries, M), (keys, M), (keys, V)))
    log_decay = -np.abs(random_array((B, N, keys, M if each_feature else 1), 2))
    before = random_array((B, N, M, V), 3) if begun else None
    states = [np.zeros((B, N, M, V)) if before is None else before]
    for s in range(keys):
        added = key[:, :, s, :, None] * value[:, :, s, None]
        states.append(np.exp(log_decay[:, :, s])[..., None] * states[-1] + added)
    seen = [states[min(max(start + t + 1, 0), keys)] for t in range(queries)]
    expected = np.stack([np.einsum("bnm,bnmv->bnv", query[:, :, t], state) for t, state in enumerate(seen)], axis=2)
    for size in SIZES:
        arguments = map(ops.convert_to_tensor, (query, key, value, log_decay))
        output, last = attend_by_state(*arguments, start, before, size)
        np.testing.assert_allclose(to_numpy(output), expected, atol=1e-5)
        np.testing.assert_allclose(to_numpy(last), states[-1], atol=1e-5)


@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_sums_that_fade_and_values_that_replace_others(begun):
    added, log_decay = random_array((B, 7, M), 1), -np.abs(random_array((B, 7, M), 2))
    key, value = random_array((B, N, 7, M), 3), random_array((B, N, 7, V), 4)
    betas, state = np.abs(random_array((B, N, 7, 1), 5)), random_array((B, N, M, V), 6) * begun
    before = (random_array((B, M), 7), state) if begun else (None, None)
    sums, values, total = [], [], np.zeros((B, M)) if before[0] is None else before[0]
    for t in range(7):
        total = np.exp(log_decay[:, t]) * total + added[:, t]
        sums.append(total)
        recalled = np.einsum("bnmv,bnm->bnv", state, key[:, :, t])
        values.append(betas[:, :, t] * (value[:, :, t] - recalled))
        state = state + key[:, :, t, :, None] * values[-1][:, :, None]
    for size in SIZES:
        found, last = decaying_sums(*map(ops.convert_to_tensor, (added, log_decay)), before[0], size)
        np.testing.assert_allclose(to_numpy(found), np.stack(sums, axis=1), atol=1e-5)
        np.testing.assert_allclose(to_numpy(last), total, atol=1e-5)
        found = new_values(*map(ops.convert_to_tensor, (key, value, betas)), before[1], size)
        np.testing.assert_allclose(to_numpy(found), np.stack(values, axis=2), atol=2e-5)
