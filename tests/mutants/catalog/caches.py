"""Planted faults: caches."""

from tests.mutants.mutant import Mutant

CACHE = ("tests/zoo/layers/attention/test_cache.py",)
ROLLING = ("tests/zoo/layers/attention/test_rolling_cache.py",)
BLOCKS = ("tests/zoo/layers/blocks/test_transformer_blocks.py::test_a_cache_gives_what_the_full_pass_gives",)
CROSS = ("tests/zoo/layers/blocks/test_transformer_blocks.py::test_cross_attention_learns_the_position",)
CONVOLUTION = ("tests/zoo/layers/blocks/test_gated_convolution.py::test_prefill_and_steps_equal_the_full_pass",)
MODELS = ("tests/zoo/models/test_every_model.py::test_named_model[transformer_small]",)
ROWS = ("tests/zoo/models/language_models/test_language_models.py::test_rows_of_different_lengths_share_caches",)
RULES = ("tests/zoo/layers/visibility/test_rules.py",)
POSITIONS = ("tests/zoo/layers/positions/test_base.py::test_in_attention",)
LOOP = ("tests/zoo/layers/recurrent/test_attention_rnn.py::test_attention_learns_the_number_of_the_step",)
STATES = ("tests/zoo/layers/attention/test_cuts.py",)
SUMS = ("tests/zoo/layers/core/test_steps.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "shorter rows of a cache attend to places where they have nothing",
        "zoo/layers/attention/base.py",
        'masks.conjunction(arguments["value_mask"], filled)',
        'arguments["value_mask"]',
        MODELS,
    ),
    Mutant(
        "shorter rows of a cache have the positions of the longest one",
        "zoo/layers/attention/base.py",
        "position if row_lengths is None else row_lengths",
        "position",
        ROWS,
    ),
    Mutant(
        "taking back tokens does not move a row to the end of its cache",
        "zoo/models/shared/transformer_layers.py",
        "(length - longest - counts)[:, None]",
        "(length - longest - ops.min(counts) + 0 * counts)[:, None]",
        MODELS,
    ),
    Mutant(
        "tokens are taken back only if every row has some",
        "zoo/models/shared/transformer_layers.py",
        "ops.any(counts > 0), moved",
        "ops.all(counts > 0), moved",
        MODELS,
    ),
    Mutant(
        "a cache counts one position for each call",
        "zoo/layers/attention/cache.py",
        'return {**buffers, "index": cache["index"] + ops.shape(memory["key"])[-2]}',
        'return {**buffers, "index": cache["index"] + 1}',
        POSITIONS,
    ),
    Mutant(
        "a write into a cache goes one place too far",
        "zoo/layers/attention/cache.py",
        "is_new = ops.logical_and(source >= 0, source < length)[:, None]",
        "is_new = ops.logical_and(source >= 0, source <= length)[:, None]",
        CACHE,
    ),
    Mutant(
        "the queries of a step are at the beginning of its keys",
        "zoo/layers/attention/cache.py",
        "lambda position, added, queries: position + added - queries",
        "lambda position, added, queries: position",
        CACHE,
    ),
    Mutant(
        "the keys of each step are at the positions of the first ones",
        "zoo/layers/attention/base.py",
        "self.project_memory(value, key, input_start)",
        "self.project_memory(value, key)",
        POSITIONS,
    ),
    Mutant(
        "a step reads the mask of the first positions",
        "zoo/layers/attention/base.py",
        "masks.slice_mask(mask, value_of(position), value_of(added))",
        "masks.slice_mask(mask, 0, value_of(added))",
        CACHE,
    ),
    Mutant(
        "a rule lets see places of a cache that are empty",
        "zoo/layers/attention/base.py",
        'visibility = visibility.limited_to(cache["index"])',
        "visibility = visibility.limited_to(None)",
        RULES,
    ),
    Mutant(
        "a layer of lower precision rounds the sums in a cache",
        "zoo/layers/attention/wide_state.py",
        '"states_as_floats", default=False',
        '"states_as_floats", default=True',
        ("tests/zoo/layers/attention/test_linear.py",),
    ),
    Mutant(
        "the queries of a step are in the segment of the first key",
        "zoo/layers/visibility/visibility.py",
        "return take(ids, ops.where(inside, positions, length), axis=1)",
        "return take(ids, ops.where(inside, positions - positions[:1], length), axis=1)",
        RULES,
    ),
    Mutant(
        "a rolling cache keeps one position too few",
        "zoo/layers/attention/cache.py",
        'remaining = ops.arange(last, dtype="int32") + first + added',
        'remaining = ops.arange(last, dtype="int32") + first + added - 1',
        ROLLING,
    ),
    Mutant(
        "keys of a rolling cache are one position off",
        "zoo/layers/attention/cache.py",
        'positions = ops.arange(last + added, dtype="int32") + (index - last)',
        'positions = ops.arange(last + added, dtype="int32") + (index - last + 1)',
        ROLLING,
    ),
    Mutant(
        "a first position that is among the last ones counts twice",
        "zoo/layers/attention/cache.py",
        "is_real = ops.logical_and(is_real, ops.logical_or(is_first, positions >= first))",
        "is_real = ops.logical_and(is_real, ops.logical_or(is_first, positions >= 0))",
        ROLLING,
    ),
    Mutant(
        "a rolling cache overwrites its first positions",
        "zoo/layers/attention/cache.py",
        'front = write(rows[..., :first, :], new, cache["index"])',
        'front = write(rows[..., :first, :], new, cache["index"] % first)',
        ROLLING,
    ),
    Mutant(
        "a cache of sums counts one position for each call",
        "zoo/layers/attention/linear_time.py",
        '"index": index + lengths[1]}',
        '"index": index + 1}',
        SUMS,
    ),
    Mutant(
        "queries of a cache of sums are at the positions of the first ones",
        "zoo/layers/attention/linear_time.py",
        "query = self.project_query(inputs, index + start)",
        "query = self.project_query(inputs, start)",
        SUMS,
    ),
    Mutant(
        "a step ignores whether there were earlier keys",
        "zoo/layers/attention/linear_time.py",
        'first = ops.where(previous["any_visible"], -1, first)',
        'first = ops.where(previous["any_visible"], first, first)',
        SUMS,
    ),
    Mutant(
        "the state that a scan ends with is the one it began with",
        "zoo/layers/core/loops.py",
        "return before.stack(), last",
        "return before.stack(), state",
        STATES,
    ),
    Mutant(
        "fading sums begin anew at each call",
        "zoo/layers/attention/state_chunks.py",
        "ops.zeros_like(own[:, 0, 0]) if before is None else before,",
        "ops.zeros_like(own[:, 0, 0]),",
        STATES,
    ),
    Mutant(
        "a convolution keeps its first inputs and not its last ones",
        "zoo/layers/blocks/gated_convolution.py",
        'cache = {"inputs": padded[:, length:], "index"',
        'cache = {"inputs": padded[:, : self.width - 1], "index"',
        CONVOLUTION,
    ),
    Mutant(
        "a block with a cache reads the mask of the first queries",
        "zoo/layers/blocks/transformer_base.py",
        "slice_mask(mask, value_of(caches.next_position(cache)), value_of(length))",
        "slice_mask(mask, 0, value_of(length))",
        BLOCKS,
    ),
    Mutant(
        "cross-attention stays at the position of the first step",
        "zoo/layers/blocks/transformer_decoder.py",
        'source["start_index"] = 0 if cache is None else value_of(caches.next_position(cache))',
        'source["start_index"] = 0',
        CROSS,
    ),
    Mutant(
        "a recurrent cell loses count after 256 steps",
        "zoo/layers/recurrent/states.py",
        "return ops.stack([low * (1 - carry), counters[:, 1] + carry], axis=-1)",
        "return ops.stack([low * (1 - carry), counters[:, 1]], axis=-1)",
        LOOP,
    ),
    Mutant(
        "a mask of new positions is read as one of the capacity",
        "zoo/layers/core/masks.py",
        "if mask is None or mask.shape[1] == length:",
        "if mask is None:",
        ("tests/zoo/layers/attention/test_state_attention.py::test_prefill_and_steps_equal_the_full_pass",),
    ),
    Mutant(
        "a block takes the mask of a rolling cache for one of its capacity",
        "zoo/layers/blocks/transformer_base.py",
        "if mask is None or cache is None or caches.is_rolling(cache):",
        "if mask is None or cache is None:",
        ("tests/zoo/layers/attention/test_rolling_cache.py::test_blocks_mask_the_steps_of_a_rolling_cache",),
    ),
]
