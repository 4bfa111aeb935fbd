"""Normalisations, which turn scores into attention weights: the base class, softmax, softmax with a sink, sigmoid."""

import keras
from keras import backend, ops

from zoo.layers.core.base import SavesOptions
from zoo.layers.core.facts import PLAIN, promises
from zoo.layers.core.softmax import LOWEST_SCORE, masked_softmax


class Normalization(SavesOptions):
    """Base of the normalisations, which compute the attention weights of a query from its scores with all keys.

    A subclass overrides `weights_of` and, if it has trainable weights, `create_weights`.

    Several attention layers may share one object and its weights, even if reloaded from a `.keras` file.

    Call arguments:
        scores: [..., T, S]; of layers with heads [B, N, T, S].
        mask: Boolean, True where a query may attend, of a shape that broadcasts to the scores; or `None`.

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
    is_new_as_layer = True
    num_heads: int | None = None
    label = "normalized"
    """Name of the function in formulas: `label(scores)`."""

    def create_weights(self, num_heads):
        """Creates no weights.

        Args:
            num_heads: N; 1 for attention without heads.
        """

    def build_for_attention(self, num_heads):
        """Creates the weights for an attention layer with N heads.

        Raises:
            ValueError: If the object has weights for another number of heads.
        """
        if not self.built:
            self.create_weights(num_heads)
            self.num_heads = num_heads
            self.built = True
        elif self.weights and self.num_heads != num_heads:
            raise ValueError(
                "Attention layers with another number of heads require another normalisation; this one is shared. "
                f"Received: num_heads={num_heads}, but {self.name} was built for {self.num_heads}."
            )

    def build(self, scores_shape):
        self.build_for_attention(scores_shape[1] if len(scores_shape) == 4 else 1)

    def get_build_config(self):
        return {"num_heads": self.num_heads} if self.weights else None

    def build_from_config(self, config):
        self.build_for_attention(config["num_heads"])

    def normalize(self, scores, mask=None):
        """Returns the attention weights in the dtype of the scores, computed in float32 or wider.

        A row in which all positions are masked is all zeros, with finite gradients.
        """
        dtype = backend.standardize_dtype(scores.dtype)
        wide = backend.result_type(dtype, "float32")
        weights = self.weights_of(ops.cast(scores, wide), mask)
        weights = weights if mask is None else ops.where(mask, weights, ops.cast(0.0, wide))
        return ops.cast(weights, dtype)

    def weights_of(self, scores, mask):
        """Returns weights [..., T, S] of scores in float32 or wider.

        `normalize` replaces them by zeros where the mask is False; in rows in which all positions are masked they must
        be finite.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `weights_of`.")

    def call(self, scores, mask=None):
        return self.normalize(scores, mask)

    def compute_output_shape(self, scores_shape):
        return scores_shape


@keras.saving.register_keras_serializable(package="attention_zoo")
class SoftmaxNormalization(Normalization):
    """Softmax, the default: `wᵢ = exp(sᵢ) / Σⱼ exp(sⱼ)`.

    Call arguments and results: see `Normalization`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SoftmaxNormalization
        >>> print(np.round(SoftmaxNormalization()(np.array([[0.0, 1.0]])), 2))
        [[0.27 0.73]]

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate", equation 6,
        https://arxiv.org/abs/1409.0473
    """

    label = "softmax"

    @promises(PLAIN)
    def normalize(self, scores, mask=None):
        return masked_softmax(scores, mask)


@keras.saving.register_keras_serializable(package="attention_zoo")
class SinkNormalization(Normalization):
    """Softmax with a sink: `wᵢ = exp(sᵢ) / (exp(z) + Σⱼ exp(sⱼ))`, so that a query may attend to nothing.

    z is a learned number for each head that starts at 0. Without `learned` it stays 0: the "off-by-one" softmax. The
    weights of a query sum to less than 1.

    Args:
        learned: Whether z is learned.
        **kwargs: Options of `keras.layers.Layer`.

    Call arguments and results: see `Normalization`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SinkNormalization
        >>> print(np.round(SinkNormalization(learned=False)(np.array([[0.0, 0.0], [-9.0, -9.0]])), 2))
        [[0.33 0.33]
         [0.   0.  ]]

    Reference:
        OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2.2, https://arxiv.org/abs/2508.10925;
        Miller 2023, "Attention Is Off By One", https://www.evanmiller.org/attention-is-off-by-one.html;
        Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks", section 3.3,
        https://arxiv.org/abs/2309.17453
    """

    label = "softmax with a sink"

    saved_options = ("learned",)

    def __init__(self, learned=True, **kwargs):
        super().__init__(**kwargs)
        self.learned = learned

    def create_weights(self, num_heads):
        self.sink = self.add_weight(name="sink", shape=(num_heads,), initializer="zeros") if self.learned else None

    def weights_of(self, scores, mask):
        if mask is not None:
            scores = ops.where(mask, scores, ops.cast(LOWEST_SCORE, scores.dtype))
        sink = ops.zeros((1,)) if self.sink is None else self.sink
        sink = ops.cast(sink, scores.dtype)[:, None, None] if len(scores.shape) == 4 else ops.cast(sink, scores.dtype)
        sink = ops.broadcast_to(sink, (*ops.shape(scores)[:-1], 1))
        return masked_softmax(ops.concatenate([scores, sink], axis=-1))[..., :-1]


@keras.saving.register_keras_serializable(package="attention_zoo")
class SigmoidNormalization(Normalization):
    """Sigmoid attention: `wᵢ = σ(sᵢ + b)` for each key separately; the weights of a query may have any sum.

    Args:
        bias: b, a number. Default: −log n for n keys that the mask allows, so that the initial sum is near 1.
        **kwargs: Options of `keras.layers.Layer`.

    Call arguments and results: see `Normalization`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SigmoidNormalization
        >>> print(np.round(SigmoidNormalization()(np.array([[0.0, 0.0, 9.0]])), 2))
        [[0.25 0.25 1.  ]]

    Reference:
        Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", equation 3,
        https://arxiv.org/abs/2409.04431
    """

    label = "sigmoid"

    saved_options = ("bias",)

    def __init__(self, bias=None, **kwargs):
        super().__init__(**kwargs)
        self.bias = bias

    def weights_of(self, scores, mask):
        if self.bias is not None:
            return ops.sigmoid(scores + self.bias)
        allowed = ops.ones_like(scores[..., :1, :]) if mask is None else ops.cast(mask, scores.dtype)
        if mask is not None and mask.shape[-1] == 1:
            allowed = allowed + ops.zeros_like(scores)
        count = ops.sum(allowed, axis=-1, keepdims=True)
        return ops.sigmoid(scores - ops.log(ops.maximum(count, 1.0)))
