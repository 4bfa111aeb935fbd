"""Planted faults: execution."""

from tests.mutants.mutant import Mutant

CORE, EXECUTION = "tests/zoo/layers/core", "tests/zoo/layers/execution"
AT_ONCE = (f"{EXECUTION}/test_tiles.py::test_tiles_and_kernels_are_as_all_at_once",)
IN_TILES = (f"{EXECUTION}/test_tiles.py::test_rules_in_tiles",)
WEIGHTS = (f"{EXECUTION}/test_execution.py::test_gradients_of_all_kinds_of_weights_in_chunks",)
IN_BOTH_PASSES = (f"{EXECUTION}/test_execution.py::test_chunks_in_graphs_in_half_precision_and_with_dropout",)
KERNEL = (f"{EXECUTION}/test_execution.py::test_what_a_fused_kernel_is_not_asked_for",)
ZERO = (f"{EXECUTION}/test_edges_of_execution.py::test_sizes_of_zero",)
PLAN = (f"{EXECUTION}/test_plan.py",)
SHORTCUTS = ("tests/zoo/layers/core/test_shortcuts.py",)
PLAIN = ("tests/zoo/layers/attention/test_plain_calls.py",)
KERNELS, DROPOUT = (f"{CORE}/test_loops.py",), (f"{CORE}/test_dropout.py",)
CUTS = ("tests/zoo/layers/attention/test_cuts.py",)
LOOPS = ("tests/zoo/layers/recurrent/test_loops.py::test_layers_are_those_of_keras",)

MUTANTS: list[Mutant] = [
    Mutant(
        "the last visible tile is skipped",
        "zoo/layers/execution/running_softmax.py",
        "lambda step, _: step < count,",
        "lambda step, _: step < count - 1,",
        AT_ONCE,
    ),
    Mutant(
        "tiles that hold nothing visible are computed as well",
        "zoo/layers/execution/tiles.py",
        "any_visible = ops.logical_and(any_visible, ops.any(self._by_batch(rule.may_allow(blocks)), axis=0))",
        "any_visible = ops.logical_or(any_visible, ops.any(self._by_batch(rule.may_allow(blocks)), axis=0))",
        (f"{EXECUTION}/test_tiles.py::test_what_no_query_of_a_tile_sees_is_not_computed",),
    ),
    Mutant(
        "a tile that only one sequence of the batch sees is skipped",
        "zoo/layers/execution/tiles.py",
        "ops.any(self._by_batch(rule.may_allow(blocks)), axis=0)",
        "ops.all(self._by_batch(rule.may_allow(blocks)), axis=0)",
        IN_TILES,
    ),
    Mutant(
        "what fills up the last tile counts as keys",
        "zoo/layers/execution/tiles.py",
        "* self.columns <= keys",
        "* self.columns < keys + self.columns",
        IN_TILES,
    ),
    Mutant(
        "the output of tiles before is not rescaled when the running maximum grows",
        "zoo/layers/execution/running_softmax.py",
        "output = output * shrink + ops.cast(addend, self.wide)",
        "output = output + ops.cast(addend, self.wide)",
        AT_ONCE,
    ),
    Mutant(
        "the sum of weights is not rescaled when the running maximum grows",
        "zoo/layers/execution/running_softmax.py",
        "sums = sums * shrink + ops.sum",
        "sums = sums + ops.sum",
        AT_ONCE,
    ),
    Mutant(
        "the gradient of a tile's scores lacks what its row has in common",
        "zoo/layers/execution/running_softmax.py",
        "(ops.cast(of_weights, weights.dtype) - inner)",
        "ops.cast(of_weights, weights.dtype)",
        AT_ONCE,
    ),
    Mutant(
        "the gradient of keys and values is that of the last tile alone",
        "zoo/layers/execution/running_softmax.py",
        "self.read(array, index[kind]) + ops.cast(new, self._sum_dtype(new))",
        "ops.cast(new, self._sum_dtype(new))",
        AT_ONCE,
    ),
    Mutant(
        "all tiles drop the same weights",
        "zoo/layers/execution/tiles.py",
        'seeds_of_parts(seed, ops.arange(grid.num_rows * grid.num_columns, dtype="int32"))',
        'seeds_of_parts(seed, ops.zeros(grid.num_rows * grid.num_columns, dtype="int32"))',
        (f"{EXECUTION}/test_tiles.py::test_each_tile_drops_weights_of_its_own",),
    ),
    Mutant(
        "all chunks drop the same weights",
        "zoo/layers/execution/chunks.py",
        "seed if seed is None else seeds_of_parts(seed, index)",
        "seed",
        (f"{EXECUTION}/test_execution.py::test_chunks_drop_weights_of_their_own",),
    ),
    Mutant(
        "the backward pass of a chunk drops the weights of the next one",
        "zoo/layers/core/loops.py",
        "results = run_chunk(index, local)",
        "results = run_chunk(index + 1, local)",
        IN_BOTH_PASSES,
    ),
    Mutant(
        "the last chunk is filled up with zeros",
        "zoo/layers/core/loops.py",
        "    last = tensor[..., -1:, :]\n",
        "    last = ops.zeros_like(tensor[..., -1:, :])\n",
        (f"{EXECUTION}/test_execution.py::test_rows_to_spare_have_finite_gradients",),
    ),
    Mutant(
        "gradients of what chunks share add up in half precision",
        "zoo/layers/core/loops.py",
        'tf.zeros_like(tensor, keras.backend.result_type(tensor.dtype.name, "float32")) for tensor in shared',
        "tf.zeros_like(tensor) for tensor in shared",
        KERNELS,
    ),
    Mutant(
        "weights that chunks read get no gradient",
        "zoo/layers/execution/chunks.py",
        "layer.compare_weights(), layer.pair_size() > 1",
        "[], layer.pair_size() > 1",
        WEIGHTS,
    ),
    Mutant(
        "large sizes are computed all at once",
        "zoo/layers/execution/plan.py",
        "if not forced and count <= dense_limit():",
        "if not forced:",
        (f"{EXECUTION}/test_execution.py::test_large_sizes_choose_chunks_by_themselves",),
    ),
    Mutant(
        "rules that tiles could skip run in chunks",
        "zoo/layers/execution/plan.py",
        "skips = visibility.causal or (visibility.rule is not None and visibility.rule.skips)",
        "skips = visibility.rule is not None and visibility.rule.skips",
        (f"{EXECUTION}/test_tiles.py::test_tiles_are_for_what_can_be_skipped",),
    ),
    Mutant(
        "a part that a subclass overrides is computed in tiles",
        "zoo/layers/execution/plan.py",
        '(not layer.is_pairwise(), f"',
        '(False, f"',
        (f"{EXECUTION}/test_tiles.py::test_what_a_subclass_overrides_sees_all_keys",),
    ),
    Mutant(
        "a fused kernel takes the place of active dropout",
        "zoo/layers/execution/plan.py",
        "if not (drops or weights) and _can_fuse(layer",
        "if not weights and _can_fuse(layer",
        KERNEL,
    ),
    Mutant(
        "a fused kernel attends evenly where nothing is visible",
        "zoo/layers/execution/run.py",
        "ops.where(any_visible, output, ops.cast(0.0, output.dtype))",
        "output",
        (f"{EXECUTION}/test_execution.py::test_a_head_that_sees_nothing_adds_nothing",),
    ),
    Mutant(
        "a fused kernel is given the mask whose gradient it cannot compute",
        "zoo/layers/execution/plan.py",
        "fits = (is_plain or fuses_masks()) and",
        "fits =",
        KERNEL,
    ),
    Mutant(
        "a known length of zero is not seen",
        "zoo/layers/execution/plan.py",
        "isinstance(size, int) and size == 0 for size in sizes",
        "isinstance(size, int) and size < 0 for size in sizes",
        ZERO,
    ),
    Mutant(
        "a plan is kept when the layer changes",
        "zoo/layers/core/base.py",
        "            forget(self)\n",
        "            pass\n",
        PLAN,
    ),
    Mutant(
        "a plan without masks is taken where there are some",
        "zoo/layers/visibility/visibility.py",
        "masked = self.query_mask is None, self.key_mask is None, self.pair_mask is None",
        "masked = ()",
        PLAN,
    ),
    Mutant(
        "a plan without dropout is taken where there is some",
        "zoo/layers/execution/plan.py",
        "options = layer.implementation, biased, drops, weights, machine",
        "options = layer.implementation, biased, False, weights, machine",
        PLAN,
    ),
    Mutant(
        "a score that draws random numbers is computed twice",
        "zoo/layers/execution/plan.py",
        "if not layer.is_repeatable():",
        "if False:",
        WEIGHTS,
    ),
    Mutant(
        "dropout does not scale what it keeps",
        "zoo/layers/core/dropout.py",
        "(2**RANDOM_BITS / (2**RANDOM_BITS - threshold))",
        "1.0",
        DROPOUT,
    ),
    Mutant(
        "neighbours are dropped together",
        "zoo/layers/core/kernels.py",
        'tf.reshape(tf.bitcast(pairs, "uint16"), shape)',
        'tf.reshape(tf.repeat(tf.bitcast(pairs, "uint16")[..., :1], 2, axis=-1), shape)',
        DROPOUT,
    ),
    Mutant(
        "the deferred gradient of a weight lacks its bias",
        "zoo/layers/core/loops.py",
        "return zeros(kernel) if bias is None else zeros(kernel) + bias",
        "return zeros(kernel) if bias is None else zeros(kernel) + tf.stop_gradient(bias)",
        LOOPS,
    ),
    Mutant(
        "the deferred gradient of a weight leaves out the first step",
        "zoo/layers/core/loops.py",
        "left = tf.reshape(left_factors[name], [-1, kernel.shape[0]])",
        "left = tf.reshape(left_factors[name] * tf.cast(tf.range(length) > 0, kernel.dtype)[:, None, None], "
        "[-1, kernel.shape[0]])",
        LOOPS,
    ),
    Mutant(
        "a window of a block begins one key late",
        "zoo/layers/attention/query_blocks.py",
        'return ops.arange(self.count, dtype="int32") * self.rows + self.first_key',
        'return ops.arange(self.count, dtype="int32") * self.rows + self.first_key + 1',
        CUTS,
    ),
    Mutant(
        "weights of a block are spread outside of its window",
        "zoo/layers/attention/query_blocks.py",
        "inside = ops.logical_and(columns >= 0, columns < self.window)[:, None]",
        "inside = (columns < self.window)[:, None]",
        CUTS,
    ),
    Mutant(
        "the state of a chunk does not fade on its way to the next",
        "zoo/layers/attention/state_chunks.py",
        "totals = ops.exp(ops.sum(log_decay, axis=-2))[..., None]",
        "totals = ops.ones_like(ops.exp(ops.sum(log_decay, axis=-2))[..., None])",
        CUTS,
    ),
    Mutant(
        "what fills up the last chunk of keys is added to the state",
        "zoo/layers/attention/state_chunks.py",
        "return ops.where(blocks.key_positions()[..., None] < length, chunks, ops.zeros_like(chunks))",
        "return chunks",
        CUTS,
    ),
    Mutant(
        "a projection whose call is replaced is not called",
        "zoo/layers/core/projections.py",
        'or "call" in vars(layer)',
        "or False",
        SHORTCUTS,
    ),
    Mutant(
        "a projection of another precision is rounded",
        "zoo/layers/core/projections.py",
        "if backend.standardize_dtype(kernel.dtype) != dtype or rows.shape[-1] != kernel.shape[0]:",
        "if rows.shape[-1] != kernel.shape[0]:",
        SHORTCUTS,
    ),
    Mutant(
        "steps forget the activation of a projection",
        "zoo/layers/attention/multi_head.py",
        "if any(dense.activation not in (None, keras.activations.linear) for dense in projections):",
        "if False:",
        SHORTCUTS,
    ),
    Mutant(
        "the common case of heads ignores positions, soft-cap and gate",
        "zoo/layers/attention/multi_head.py",
        "has_no_parts = all(part is None for part in parts)",
        "has_no_parts = True",
        PLAIN,
    ),
    Mutant(
        "the common case ignores which steps a class overrides",
        "zoo/layers/attention/description.py",
        "has_plain_steps = keeps(self, PLAIN, _STEPS) and",
        "has_plain_steps =",
        PLAIN,
    ),
    Mutant(
        "a layer does not forget what its score did",
        "zoo/layers/core/base.py",
        "for holder in _holders.get(self, ()):",
        "for holder in ():",
        PLAIN,
    ),
    Mutant(
        "the common case computes layers that are not built",
        "zoo/layers/attention/base.py",
        "if not self.built or not self.is_plain():",
        "if not self.is_plain():",
        PLAIN,
    ),
    Mutant(
        "the common case takes an empty sequence of keys",
        "zoo/layers/attention/base.py",
        "elif visibility.may_hide_all and not causal:",
        "elif False:",
        PLAIN,
    ),
    Mutant(
        "the common case of heads returns weights after dropout",
        "zoo/layers/attention/multi_head.py",
        "dropped = weights if seed is None else",
        "dropped = weights = weights if seed is None else",
        PLAIN,
    ),
    Mutant(
        "what is read in a branch is kept for outside of it",
        "zoo/layers/core/lazy.py",
        "if self._computed is None or graph is None or self._computed[0] is not graph:",
        "if self._computed is None:",
        SHORTCUTS,
    ),
]
