"""Base of the layers that replace self-attention without comparing queries with keys."""

from keras import ops

from zoo.layers.core import masks
from zoo.layers.core.base import KeepsQuantization, ReturnsMore


class SelfMixing(ReturnsMore, KeepsQuantization):
    """Base of layers that mix the positions of one sequence, called like self-attention: `layer(x, x)` or `layer(x)`.

    A subclass overrides `mix`, and `create_cache` if it can decode step by step.

    Call arguments:
        query: [B, T, D].
        value: `query` or `None`.
        key: `query` or `None`.
        query_mask: Boolean [B, T], True at real positions; all masks are ANDed.
        value_mask: Boolean [B, T]; with a cache also [B, L], of which only the new positions are read.
        key_mask: Like `value_mask`.
        attention_mask: Must be `None`: there are no pairs to mask.
        return_attention_scores: Whether to return the weights of the positions, in layers that have weights.
        training: Whether dropout is active.
        use_causal_mask: Whether no position may attend to a later one; the layer must then be causal.
        mask: Boolean [B, T], of the query; Keras passes it if the query is the only tensor of a call.
        attention_bias: Must be `None`: there are no scores.
        cache: Dict from `create_cache`; the positions of the call are appended.

    Returns:
        [B, T, D], with zeros at masked positions; with `return_attention_scores` weights [B, N, T, T]; the new cache,
        if any, comes last.

    Raises:
        ValueError: For a `value` or `key` of another shape, an `attention_mask` or `attention_bias`, weights that do
            not exist, a floating point mask, or a causal mask or cache of a layer that is not causal.
    """

    has_weights = True

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        # The output projection, in layers that have one. As an attribute of the class it would hide the sublayer that
        # `build` creates: PyTorch keeps sublayers outside the instance's `__dict__`.
        self.output_dense = None

    @property
    def is_causal(self):
        """Whether no position attends to a later one."""
        return True

    def mix(self, inputs, real, training, cache, return_attention_scores):
        """Returns outputs [B, T, D], weights [B, N, T, T] or `None`, and the new cache or `None`.

        Args:
            inputs: [B, T, D].
            real: Boolean [B, T], False at masked positions, which must have no effect; or `None`.
            training: Whether dropout is active.
            cache: From `create_cache`, or `None`.
            return_attention_scores: Whether to return the weights; with a cache always False.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `mix`.")

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        mask=None,
        attention_bias=None,
        cache=None,
    ):
        self._check_call(query, (value, key), attention_mask, attention_bias, return_attention_scores, cache)
        if (use_causal_mask or cache is not None) and not self.is_causal:
            argument = "use_causal_mask" if cache is None else "cache"
            raise ValueError(f"`{argument}` of {type(self).__name__} requires `padding='causal'`.")
        mask_arguments = {"query_mask": query_mask, "value_mask": value_mask, "key_mask": key_mask, "mask": mask}
        if cache is not None:
            for name in ("value_mask", "key_mask"):
                mask_arguments[name] = masks.mask_of_new(
                    mask_arguments[name], name, cache["index"], ops.shape(query)[1]
                )
        masks.check_batch(mask_arguments, query.shape[0])
        real = _combined_mask(mask_arguments, ops.shape(query)[1])
        inputs = masks.zero_masked(query, real)
        output, weights, cache = self.mix(inputs, real, training, cache, return_attention_scores)
        results = [masks.zero_masked(output, real)]
        results += [weights] if return_attention_scores else []
        results += [] if cache is None else [cache]
        return tuple(results) if len(results) > 1 else results[0]

    def _check_call(self, query, others, attention_mask, attention_bias, return_attention_scores, cache):
        name = type(self).__name__
        for other in others:
            if other is not None and tuple(other.shape) != tuple(query.shape):
                raise ValueError(
                    f"{name} mixes one sequence: `value` and `key` must be `query` or None. "
                    f"Received: shapes {tuple(query.shape)} and {tuple(other.shape)}."
                )
        for argument, tensor in (("attention_mask", attention_mask), ("attention_bias", attention_bias)):
            if tensor is not None:
                raise ValueError(f"{name} takes no `{argument}`: it has no scores of pairs.")
        if return_attention_scores and (cache is not None or not self.has_weights):
            reason = "with a cache it computes no weights" if self.has_weights else "it has no weights"
            raise ValueError(f"{name} takes no `return_attention_scores`: {reason}.")

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return query_shape


def _combined_mask(mask_arguments, length):
    """Returns the conjunction of a dict of masks, boolean [B, T]; `None` if all are `None`."""
    combined = None
    for name, mask in mask_arguments.items():
        mask = masks.combined_value_mask(masks.check_mask(mask, name, (2,)), combined, length)
        combined = combined if mask is None else mask
    return combined
