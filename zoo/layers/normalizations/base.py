"""Base of the normalisations, which make attention weights of scores."""

from keras import backend, ops

from zoo.layers.core.saving import SavesOptions


class Normalization(SavesOptions):
    """Base of the normalisations: the weights of a query, of its scores with all keys.

    A subclass overrides `weights_of` and, if it has weights of its own, `create_weights`.

    Several attention layers may hold one object and share its weights, also when reloaded from a `.keras` file.

    Call arguments:
        scores: [..., T, S]; of layers with heads [B, N, T, S].
        mask: Boolean, True where a query may attend; broadcasts to the scores. Or `None`.

    Returns:
        Weights [..., T, S], zero where the mask is False.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from zoo.layers import Attention, Normalization
        >>> class Hardmax(Normalization):
        ...     def weights_of(self, scores, mask):
        ...         return ops.cast(ops.equal(scores, ops.max(scores, axis=-1, keepdims=True)), scores.dtype)
        >>> inputs = np.array([[[1.0, 0.0], [0.0, 2.0]]], "float32")
        >>> print(Attention("dot", normalization=Hardmax())(inputs, inputs)[0])
        tf.Tensor(
        [[1. 0.]
         [0. 2.]], shape=(2, 2), dtype=float32)
    """

    may_be_shared = True
    normalizes_scores = True
    num_heads: int | None = None
    label = "normalized"
    """What it is called in formulas: `label(scores)`."""

    def create_weights(self, num_heads):
        """Creates no weights.

        Args:
            num_heads: N; 1 for attention without heads.
        """

    def build_for_attention(self, num_heads):
        """Creates the weights for use in an attention layer of N heads.

        Raises:
            ValueError: If the object has weights for another number of heads.
        """
        if not self.built:
            self.create_weights(num_heads)
            self.num_heads = num_heads
            self.built = True
        elif self.weights and self.num_heads != num_heads:
            raise ValueError(
                "Attention layers with another number of heads need another normalisation; this one is shared. "
                f"Received: num_heads={num_heads}, where {self.name} has been built for {self.num_heads}."
            )

    def build(self, scores_shape):
        self.build_for_attention(scores_shape[1] if len(scores_shape) == 4 else 1)

    def get_build_config(self):
        return {"num_heads": self.num_heads} if self.weights else None

    def build_from_config(self, config):
        self.build_for_attention(config["num_heads"])

    def normalize(self, scores, mask=None):
        """Returns the weights in the dtype of the scores; they are computed in float32 or wider.

        A row without any allowed position is all zeros, with finite gradients.
        """
        dtype = backend.standardize_dtype(scores.dtype)
        wide = backend.result_type(dtype, "float32")
        weights = self.weights_of(ops.cast(scores, wide), mask)
        weights = weights if mask is None else ops.where(mask, weights, ops.cast(0.0, wide))
        return ops.cast(weights, dtype)

    def weights_of(self, scores, mask):
        """Returns weights [..., T, S] of scores in float32 or wider; what they are where the mask is False is the same.

        Where a row has nothing allowed, they must be finite.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `weights_of`.")

    def call(self, scores, mask=None):
        return self.normalize(scores, mask)

    def compute_output_shape(self, scores_shape):
        return scores_shape
