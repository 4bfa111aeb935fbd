"""Planted faults: masks, and rules of what a query may see."""

from tests.mutants.mutant import Mutant

ATTENTION = "tests/zoo/layers/attention"
MATRIX = "tests/zoo/layers/test_matrix.py::test_contract"
VISIBILITY = "zoo/layers/visibility"

MUTANTS: list[Mutant] = [
    Mutant(
        "the causal mask hides the query's own position",
        "zoo/layers/visibility/visibility.py",
        "self.key_positions <= self.query_positions[:, None]",
        "self.key_positions < self.query_positions[:, None]",
        (f"{ATTENTION}/test_masks.py::test_causal_mask_by_hand",),
    ),
    Mutant(
        "the mask of the queries is ignored",
        "zoo/layers/visibility/visibility.py",
        "if self.query_mask is not None:\n",
        "if self.query_mask is None and False:\n",
        (f"{ATTENTION}/test_masks.py::test_masks_of_a_layer[additive_attention]",),
    ),
    Mutant(
        "the mask of the keys is ignored where the values have one",
        "zoo/layers/core/masks.py",
        "return functools.reduce(ops.logical_and, masks)",
        "return masks[0]",
        (f"{ATTENTION}/test_masks.py::test_masks_of_a_layer[additive_attention]",),
    ),
    Mutant(
        "all heads take the mask of the first one",
        "zoo/layers/visibility/visibility.py",
        "conditions.append(self.pair_mask)",
        "conditions.append(self.pair_mask[:, :1])",
        (f"{ATTENTION}/test_masks.py::test_masks_of_a_layer[grouped_query_attention]",),
    ),
    Mutant(
        "what is masked is multiplied by zero, which leaves NaN",
        "zoo/layers/core/masks.py",
        "return ops.where(mask[:, :, None], inputs, ops.cast(0.0, inputs.dtype))",
        "return inputs * ops.cast(mask[:, :, None], inputs.dtype)",
        (f"{MATRIX}[additive_attention]",),
    ),
    Mutant(
        "queries beyond the keys are in the segment of the first key",
        "zoo/layers/visibility/visibility.py",
        "return ops.take(ids, ops.where(inside, positions, length), axis=1)",
        "return ops.take(ids, ops.where(inside, positions, 0), axis=1)",
        ("tests/zoo/layers/test_agreement.py",),
    ),
    Mutant(
        "a step with a cache begins at the first position",
        "zoo/layers/attention/base.py",
        "start_index = caches.first_query_position(position, added, queries)",
        "start_index = caches.first_query_position(0, added, queries)",
        (f"{ATTENTION}/test_cache.py::test_steps_equal_the_full_pass[rotary]",),
    ),
    Mutant(
        "a prefix may be read into the empty room of a cache",
        "zoo/layers/attention/base.py",
        'visible = visible.limited_to(cache["index"])',
        "visible = visible.limited_to(None)",
        ("tests/zoo/layers/test_agreement.py",),
    ),
    Mutant(
        "the output of a query without keys is what the fused kernel makes of it",
        "zoo/layers/execution/run.py",
        "output = output if seen is None else ops.where(seen, output, ops.cast(0.0, output.dtype))",
        "output = output if seen is None else ops.where(True, output, ops.cast(0.0, output.dtype))",
        ("tests/zoo/layers/test_matrix.py::test_heads_in_rare_situations",),
    ),
    Mutant(
        "a window does not reach its far edge",
        f"{VISIBILITY}/windows.py",
        "pairs.key >= pairs.query - self.left",
        "pairs.key > pairs.query - self.left",
        (f"{ATTENTION}/test_blocked.py", "tests/zoo/layers/visibility"),
    ),
    Mutant(
        "a prefix is one position too long",
        f"{VISIBILITY}/sequences.py",
        'pairs.key < pairs.inputs["prefix_length"]',
        'pairs.key <= pairs.inputs["prefix_length"]',
        ("tests/zoo/layers/test_agreement.py", "tests/zoo/layers/visibility"),
    ),
    Mutant(
        "under a causal mask a prefix lets another rule see the future",
        f"{VISIBILITY}/sequences.py",
        "return Causal() & rule",
        "return rule",
        ("tests/zoo/layers/test_agreement.py", "tests/zoo/layers/visibility"),
    ),
    Mutant(
        "a gap of a dilated window is counted from key 0",
        f"{VISIBILITY}/windows.py",
        "ops.equal(steps % self.dilation, 0)",
        "ops.equal(pairs.key % self.dilation, 0)",
        ("tests/zoo/layers/test_agreement.py", "tests/zoo/layers/visibility"),
    ),
    Mutant(
        "a tile on the diagonal counts as wholly visible",
        f"{VISIBILITY}/sequences.py",
        "return blocks.key.last <= blocks.query.first",
        "return blocks.key.first <= blocks.query.first",
        ("tests/zoo/layers/execution/test_tiles.py", "tests/zoo/layers/visibility"),
    ),
    Mutant(
        "rows that fill up the last tile count as keys",
        "zoo/layers/execution/tiles.py",
        "exists = tile_visibility.key_positions < keys",
        "exists = tile_visibility.key_positions <= keys",
        (f"{ATTENTION}/test_blocked.py::test_large_windows_are_computed_in_tiles",),
    ),
    Mutant(
        "a window sees copies of the first key before it",
        "zoo/layers/attention/blocked.py",
        "ops.logical_and(positions >= 0, positions < axis_size(visible.key_positions, 0))[None]",
        "(positions < axis_size(visible.key_positions, 0))[None]",
        (f"{ATTENTION}/test_blocked.py::test_biases_broadcast",),
    ),
    Mutant(
        "linear attention sums masked keys",
        "zoo/layers/attention/linear.py",
        'key = zero_masked_keys(memory["key"], visible)',
        'key = memory["key"]',
        (f"{ATTENTION}/test_linear.py",),
    ),
    Mutant(
        "masked keys change the state of retention and its kin",
        "zoo/layers/attention/linear_time.py",
        "return ops.where(visible.key_mask[:, None, :, None], key, ops.zeros_like(key))",
        "return key",
        (f"{MATRIX}[delta_rule_attention]",),
    ),
    Mutant(
        "a predicted window counts masked keys",
        "zoo/layers/attention/local.py",
        "if visible.key_mask is None:",
        "if visible.key_mask is None or True:",
        (f"{ATTENTION}/test_local.py",),
    ),
    Mutant(
        "pooling of segments reads masked positions",
        "zoo/layers/attention/segment_pooling.py",
        "members = ops.logical_and(members, mask[:, None])",
        "members = ops.logical_or(members, members)",
        (f"{ATTENTION}/test_segment_pooling.py",),
    ),
    Mutant(
        "blocks are chosen by the mean of hidden keys, too",
        f"{VISIBILITY}/blocks.py",
        'values = ops.where(seen, ops.cast(ops.stop_gradient(scores), "float32"), 0.0)',
        'values = ops.cast(ops.stop_gradient(scores), "float32")',
        ("tests/zoo/layers/test_agreement.py",),
    ),
]
