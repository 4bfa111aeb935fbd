"""The softmax with a sink, to which a query may attend in place of the keys."""

import keras
from keras import ops

from zoo.layers.core.kernels import LOWEST_SCORE
from zoo.layers.core.softmax import masked_softmax
from zoo.layers.normalizations.base import Normalization


@keras.saving.register_keras_serializable(package="attention_zoo")
class SinkNormalization(Normalization):
    """Softmax with a sink: `wᵢ = exp(sᵢ) / (exp(z) + Σⱼ exp(sⱼ))`, so that a query may attend to nothing.

    z is a learned number of each head, at first 0; without `learned` it is 0 for all: the "off-by-one" softmax. The
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
