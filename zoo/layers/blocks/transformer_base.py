"""Base of the Transformer blocks: residual connections around their sublayers."""

from zoo.layers.attention import cache as caches
from zoo.layers.core.base import ReturnsMore, SavesOptions
from zoo.layers.core.checks import check_layer
from zoo.layers.core.dropout import Dropout
from zoo.layers.core.lazy import length_of, value_of
from zoo.layers.core.masks import check_mask, mask_of_new, sizes_differ, slice_mask
from zoo.layers.core.normalization import NORMALIZATIONS, make_normalization


class TransformerBlock(ReturnsMore, SavesOptions):
    """Base of the Transformer blocks: each sublayer is wrapped in normalisation, dropout and a residual connection.

    Post-norm (Vaswani et al. 2017): `norm(x + dropout(f(x)))`. Pre-norm (Xiong et al. 2020): `x + dropout(f(norm(x)))`.
    A stack of pre-norm blocks ends with one more normalisation, which is part of the model.

    Args:
        sublayers: The layers of the block by name, in order.
        normalize_first: Whether the normalisation comes first (pre-norm).
        dropout: Rate of dropout on the output of each sublayer.
        epsilon: Constant of the normalisation.
        seed: Seed of the dropout.
        normalization: `"layer_norm"`: `(x − mean(x)) / √(var(x) + ε) ⊙ γ + β`; `"rms_norm"`: `x / √(mean(x²) + ε) ⊙ γ`.

    Reference:
        Vaswani et al. 2017, section 3.1, https://arxiv.org/abs/1706.03762;
        Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", https://arxiv.org/abs/2002.04745;
        Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4, https://arxiv.org/abs/1910.07467
    """

    saved_options: tuple[str, ...] = ("normalize_first", "dropout", "epsilon", "seed", "normalization")

    def __init__(
        self,
        sublayers,
        normalize_first=False,
        dropout=0.0,
        epsilon=1e-5,
        seed=None,
        normalization="layer_norm",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if normalization not in NORMALIZATIONS:
            raise ValueError(
                f"`normalization` must be one of {', '.join(NORMALIZATIONS)}. "
                f"Received: normalization={normalization!r}."
            )
        self.supports_masking = True
        for name, sublayer in sublayers.items():
            setattr(self, name, check_layer(name, sublayer))
        self.normalize_first = normalize_first
        self.dropout = dropout
        self.epsilon = epsilon
        self.seed = seed
        self.normalization = normalization
        self.norms = [
            make_normalization(normalization, epsilon=epsilon, dtype=self.dtype_policy, name=f"{name}_norm")
            for name in sublayers
        ]
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build_sublayer(self, sublayer, *shapes):
        """Builds a sublayer unless it is built already, as it is after reloading."""
        if not sublayer.built:
            sublayer.build(*shapes)

    def build_norms(self, inputs_shape):
        """Builds the normalisations of activations [B, T, D]."""
        for norm in self.norms:
            norm.build(inputs_shape)

    def pre_norm(self, index, inputs):
        """Returns the input of sublayer number `index`, normalised in a pre-norm block."""
        return self.norms[index](inputs) if self.normalize_first else inputs

    def add_residual(self, index, inputs, outputs, training=None):
        """Returns the activations after sublayer number `index` from its inputs and outputs."""
        summed = self.residual_sum(inputs, outputs, training)
        return summed if self.normalize_first else self.norms[index](summed)

    def residual_sum(self, inputs, outputs, training=None):
        """Returns `inputs + dropout(outputs)`."""
        if sizes_differ(inputs.shape[-1], outputs.shape[-1]):
            raise ValueError(
                "Each sublayer must return vectors of the size of its inputs, to which they are added; without an "
                "output projection, num_heads · value_dim must be that size. "
                f"Received: inputs of size {inputs.shape[-1]}, outputs of size {outputs.shape[-1]}."
            )
        return inputs + self.dropout_layer(outputs, training=training)

    def self_attention_masks(self, mask, inputs, cache=None):
        """Returns the masks of queries [B, T] and of values [B, L] for self-attention, both `None` without a mask.

        Without a cache or with a rolling one, L = T. With another cache of keys, the mask is [B, L]: it covers the
        capacity of the cache, or all positions of a growing cache and the new ones. With a state, L may be either.

        Raises:
            ValueError: If `mask` does not cover the cache.
        """
        if mask is None or cache is None or caches.is_rolling(cache):
            return mask, mask
        mask, length = check_mask(mask, "mask", (2,)), length_of(inputs)
        if "key" not in cache:  # a state has no capacity
            query_mask = mask_of_new(mask, "mask", value_of(caches.next_position(cache)), value_of(length))
            return query_mask, query_mask
        capacity = caches.capacity_after(cache, length)
        if sizes_differ(mask.shape[1], capacity):
            raise ValueError(
                f"With a cache, `mask` must be [B, L], L = {capacity}: it covers all positions of the cache, not only "
                f"the new ones. Received: shape={tuple(mask.shape)}."
            )
        return slice_mask(mask, value_of(caches.next_position(cache)), value_of(length)), mask

    def attend(self, attention, query, return_attention_scores=False, cache=None, attention_bias=None, **arguments):
        """Returns an attention layer's output, its weights (`None` unless requested) and its new cache or `None`."""
        # Not all attention layers have caches or take biases.
        arguments |= {} if cache is None else {"cache": cache}
        arguments |= {} if attention_bias is None else {"attention_bias": attention_bias}
        results = attention(query, return_attention_scores=return_attention_scores, **arguments)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        cache = None if cache is None else results.pop()
        return results[0], results[1] if return_attention_scores else None, cache

    def attend_within(self, attention, inputs, mask, cache, training, **options):
        """Returns the activations after self-attention, its weights, its new cache, and the mask of the queries.

        The weights are `None` unless requested; the options are those of `attend`.
        """
        normalized = self.pre_norm(0, inputs)
        query_mask, value_mask = self.self_attention_masks(mask, inputs, cache)
        attended, scores, cache = self.attend(
            attention,
            normalized,
            cache=cache,
            value=normalized,
            query_mask=query_mask,
            value_mask=value_mask,
            training=training,
            **options,
        )
        return self.add_residual(0, inputs, attended, training), scores, cache, query_mask

    def compute_output_shape(self, inputs_shape, *args, **kwargs):
        return inputs_shape
