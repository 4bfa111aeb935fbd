"""Planted faults: what makes weights of scores."""

from tests.mutants.mutant import Mutant

ATTENTION = "tests/zoo/layers/attention"
NORMALIZATIONS = "zoo/layers/normalizations"

MUTANTS: list[Mutant] = [
    Mutant(
        "a row without any key keeps uniform weights",
        "zoo/layers/core/softmax.py",
        "return weights if mask is None else ops.where(mask, weights, ops.cast(0.0, weights.dtype))",
        "return weights",
        (f"{ATTENTION}/test_masks.py",),
    ),
    Mutant(
        "the softmax is computed in half precision",
        "zoo/layers/core/softmax.py",
        'scores = ops.cast(scores, backend.result_type(dtype, "float32"))',
        "pass",
        (f"{ATTENTION}/test_masks.py",),
    ),
    Mutant(
        "masked scores are not below all others",
        "zoo/layers/core/softmax.py",
        "ops.where(mask, scores, ops.cast(LOWEST_SCORE, scores.dtype))",
        "ops.where(mask, scores, ops.cast(-1e3, scores.dtype))",
        (f"{ATTENTION}/test_masks.py",),
    ),
    Mutant(
        "the gradient of the masked softmax is that of a product",
        "zoo/layers/core/softmax.py",
        "return weights * (upstream - ops.sum(upstream * weights, axis=-1, keepdims=True))",
        "return weights * upstream",
        (f"{ATTENTION}/test_masks.py::test_masked_softmax_has_derivatives_in_graphs",),
    ),
    Mutant(
        "an infinite bias is added as it is",
        "zoo/layers/core/masks.py",
        'return ops.clip(ops.cast(bias, backend.result_type(dtype, "float32")), -LARGEST_BIAS, LARGEST_BIAS)',
        'return ops.cast(bias, backend.result_type(dtype, "float32"))',
        (f"{ATTENTION}/test_calls.py",),
    ),
    Mutant(
        "a bias is rounded to the dtype of the scores",
        "zoo/layers/attention/description.py",
        "scores = ops.cast(scores, backend.result_type(scores.dtype, bias.dtype)) + bias",
        "scores = scores + ops.cast(bias, scores.dtype)",
        (f"{ATTENTION}/test_calls.py",),
    ),
    Mutant(
        "the running softmax has no row maximum",
        "zoo/layers/execution/running_softmax.py",
        "largest = ops.maximum(before, ops.max(scores, axis=-1, keepdims=True))",
        "largest = ops.zeros_like(before)",
        ("tests/zoo/layers/test_matrix.py::test_heads_in_rare_situations",),
    ),
    Mutant(
        "the running softmax does not scale down what it has",
        "zoo/layers/execution/running_softmax.py",
        "output = output * shrink + ops.cast(addend, self.wide)",
        "output = output + ops.cast(addend, self.wide)",
        ("tests/zoo/layers/execution/test_tiles.py",),
    ),
    Mutant(
        "the softmax of a segment takes its row maximum of all segments",
        "zoo/layers/attention/segment_pooling.py",
        "weights = masked_softmax(ops.broadcast_to(scores, ops.shape(members)), members)",
        "weights = ops.softmax(ops.broadcast_to(scores, ops.shape(members))) * ops.cast(members, scores.dtype)\n"
        "        weights = weights / ops.maximum(ops.sum(weights, axis=-1, keepdims=True), 1e-9)",
        (f"{ATTENTION}/test_segment_pooling.py",),
    ),
    Mutant(
        "all heads take the sink of the first one",
        f"{NORMALIZATIONS}/base.py",
        "ops.cast(sink, scores.dtype)[:, None, None]",
        "ops.cast(sink, scores.dtype)[:1, None, None]",
        ("tests/zoo/layers/test_reference.py",),
    ),
    Mutant(
        "the sink off by one counts as one score of 1",
        f"{NORMALIZATIONS}/base.py",
        "sink = ops.zeros((1,)) if self.sink is None else self.sink",
        "sink = ops.ones((1,)) if self.sink is None else self.sink",
        ("tests/zoo/layers/test_by_hand.py",),
    ),
    Mutant(
        "the bias of sigmoids counts hidden keys",
        f"{NORMALIZATIONS}/base.py",
        "allowed = ops.ones_like(scores[..., :1, :]) if mask is None else ops.cast(mask, scores.dtype)",
        "allowed = ops.ones_like(scores[..., :1, :])",
        ("tests/zoo/layers/test_reference.py",),
    ),
    Mutant(
        "sparse weights are of scores that masks hide as well",
        f"{NORMALIZATIONS}/sparse.py",
        "scores = ops.where(mask, scores, ops.cast(LOWEST_SCORE, scores.dtype))",
        "scores = ops.where(mask, scores, scores)",
        ("tests/zoo/layers/test_reference.py",),
    ),
    Mutant(
        "sparsemax has one key too many in its support",
        f"{NORMALIZATIONS}/sparse.py",
        "ops.take_along_axis(thresholds, ops.maximum(size - 1, 0), axis=-1)",
        "ops.take_along_axis(thresholds, ops.minimum(size, ops.shape(thresholds)[-1] - 1), axis=-1)",
        ("tests/zoo/layers/test_reference.py",),
    ),
    Mutant(
        "entmax by bisection stops before it is exact",
        f"{NORMALIZATIONS}/sparse.py",
        "_NEWTON_STEPS = 3",
        "_NEWTON_STEPS = 0",
        ("tests/zoo/layers/test_reference.py",),
    ),
    Mutant(
        "scores are capped after the biases of positions",
        "zoo/layers/attention/multi_head.py",
        "return _add_term(scores, self.positions.bias(*pairs))",
        "return self.cap_scores(_add_term(scores, self.positions.bias(*pairs)))",
        (f"{ATTENTION}/test_score_limits.py",),
    ),
    Mutant(
        "weights are returned after dropout",
        "zoo/layers/attention/description.py",
        "dropped = weights if seed is None else drop_weights(weights, self.dropout, seed)",
        "dropped = weights = weights if seed is None else drop_weights(weights, self.dropout, seed)",
        (f"{ATTENTION}/test_plain_calls.py",),
    ),
    Mutant(
        "the common case of one head returns weights after dropout",
        "zoo/layers/attention/single_head.py",
        "dropped = weights if seed is None else",
        "dropped = weights = weights if seed is None else",
        (f"{ATTENTION}/test_plain_calls.py",),
    ),
    Mutant(
        "differential attention subtracts the first softmax",
        "zoo/layers/attention/differential.py",
        "ops.cast(first - second * ops.cast(self.subtracted_part(), first.dtype), self.compute_dtype)",
        "ops.cast(first * (1 - ops.cast(self.subtracted_part(), first.dtype)), self.compute_dtype)",
        (f"{ATTENTION}/test_mixed_weights.py",),
    ),
]
