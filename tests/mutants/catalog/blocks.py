"""Planted faults: blocks and scores."""

from tests.mutants.mutant import Mutant

BLOCKS = ("tests/zoo/layers/blocks/test_transformer_blocks.py::test_rms_decoder_block",)
FEED_FORWARD = ("tests/zoo/layers/blocks/test_transformer_blocks.py::test_feed_forward",)
BY_HAND = ("tests/zoo/layers/blocks/test_transformer_blocks.py::test_normalizations_by_hand",)
CONVOLUTION = ("tests/zoo/layers/blocks/test_gated_convolution.py",)
NORMALIZATION = ("tests/zoo/layers/core/test_normalization.py",)
ARRIVING = ("tests/zoo/layers/blocks/test_masks_that_come.py",)
SCORES = ("tests/zoo/layers/scores/test_scores.py",)
LOCATION = ("tests/zoo/layers/scores/test_location.py",)
SHARING = ("tests/zoo/layers/core/test_sharing.py",)
ACTIVATIONS = ("tests/zoo/layers/core/test_feed_forward.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "a post-norm block normalises its inputs",
        "zoo/layers/blocks/transformer_base.py",
        "return self.norms[index](inputs) if self.normalize_first else inputs",
        "return self.norms[index](inputs)",
        BLOCKS,
    ),
    Mutant(
        "the residual goes around the normalisation",
        "zoo/layers/blocks/transformer_base.py",
        "return summed if self.normalize_first else self.norms[index](summed)",
        "return summed if self.normalize_first else inputs + self.norms[index](outputs)",
        BY_HAND,
    ),
    Mutant(
        "cross-attention forgets the memory's mask",
        "zoo/layers/blocks/transformer_decoder.py",
        "value_mask=single_mask(memory_mask),",
        "value_mask=None,",
        BLOCKS,
    ),
    Mutant(
        "the gate is what it should let through",
        "zoo/layers/core/feed_forward.py",
        "return multiply(self.intermediate_dense, inputs) * multiply(self.linear_dense, inputs)",
        "return self.intermediate_dense.activation(self.linear_dense(inputs)) * multiply(self.linear_dense, inputs)",
        FEED_FORWARD,
    ),
    Mutant(
        "masks of embeddings do not reach the decoder's block",
        "zoo/layers/blocks/transformer_decoder.py",
        "mask = inputs_mask if mask is None and cache is None else mask",
        "mask = mask",
        ARRIVING,
    ),
    Mutant(
        "the gradient of a layer's norm lacks its second mean",
        "zoo/layers/core/normalization.py",
        "scale * (inner - _mean(inner) - normalized * _mean(inner * normalized))",
        "scale * (inner - _mean(inner))",
        NORMALIZATION,
    ),
    Mutant(
        "a convolution that keeps the length sees one position more to the left",
        "zoo/layers/blocks/gated_convolution.py",
        'if self.padding == "causal" else (self.width - 1) // 2',
        'if self.padding == "causal" else self.width // 2',
        CONVOLUTION,
    ),
    Mutant(
        "the convolution's context is not scaled by what is masked",
        "zoo/layers/blocks/gated_convolution.py",
        "if memory_mask is None:\n            values",
        "if True:\n            values",
        CONVOLUTION,
    ),
    Mutant(
        "masked positions leak into a convolution",
        "zoo/layers/blocks/gated_convolution.py",
        "inputs = zero_masked(inputs, mask)",
        "inputs = inputs + 0",
        CONVOLUTION,
    ),
    Mutant(
        "scaled dot products are divided by the size itself",
        "zoo/layers/scores/products.py",
        "return query * query.shape[-1] ** -0.5",
        "return query * query.shape[-1] ** -1.0",
        SCORES,
    ),
    Mutant(
        "the normalised additive score divides by the square of a length",
        "zoo/layers/scores/additive.py",
        "return ops.sqrt(ops.sum(ops.square(",
        "return (ops.sum(ops.square(",
        SCORES,
    ),
    Mutant(
        "squares of half-precision vectors overflow in a cosine",
        "zoo/layers/scores/products.py",
        "squares = ops.sum(ops.square(wide), axis=-1, keepdims=True)",
        "squares = ops.cast(ops.sum(ops.square(ops.cast(wide, vectors.dtype)), axis=-1, keepdims=True), wide.dtype)",
        SCORES,
    ),
    Mutant(
        "a location score pays heed to what stands at a place",
        "zoo/layers/scores/location.py",
        "return ops.where(False, key, ops.zeros_like(key))",
        "return key * 0",
        LOCATION,
    ),
    Mutant(
        "places without a score are attended to",
        "zoo/layers/scores/by_name.py",
        "return self.score.max_keys",
        "return None",
        LOCATION,
    ),
    Mutant(
        "a score that is shared is copied when a model is reloaded",
        "zoo/layers/scores/base.py",
        "may_be_shared = True",
        "may_be_shared = False",
        SHARING,
    ),
    Mutant(
        "positions that are shared are copied with a model",
        "zoo/layers/positions/base.py",
        "may_be_shared = True",
        "may_be_shared = False",
        SHARING,
    ),
    Mutant(
        "the heads of a score share one copy of it",
        "zoo/layers/scores/by_name.py",
        "for head, score in enumerate(self.head_scores)",
        "for head, score in enumerate([self.head_scores[0]] * self.num_heads)",
        SCORES,
    ),
    Mutant(
        "the tanh of GELU has the cube's factor of another formula",
        "zoo/layers/core/feed_forward.py",
        "approximate=True",
        "approximate=False",
        ACTIVATIONS,
    ),
]
