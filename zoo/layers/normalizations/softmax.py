"""The softmax."""

import keras

from zoo.layers.core.overrides import PLAIN, promises
from zoo.layers.core.softmax import masked_softmax
from zoo.layers.normalizations.base import Normalization


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
