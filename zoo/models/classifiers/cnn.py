"""Convolutions over words with max pooling."""

import keras
from keras import ops

from zoo.models.catalog.classifiers import CNNClassifierOptions
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.base import build_all


@keras.saving.register_keras_serializable(package="attention_zoo")
class CNNClassifier(ClassifierModel):
    """One layer of convolutions of several widths, pooled over time.

    `c_t = [relu(W_h x_{t … t+h−1} + b_h) for each width h]`, around the token t and with zeros outside the text;
    `logits = W dropout(max_t c_t) + b`.

    Call arguments and results: see `ClassifierModel`.

    Reference:
        Kim 2014, "Convolutional Neural Networks for Sentence Classification", section 2,
        https://aclanthology.org/D14-1181
    """

    options_class = CNNClassifierOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.convolutions = [self._convolution(width, f"convolution_{width}") for width in self.options.widths]

    def embedding_scale(self):
        return self.embedding_dim, 0.144  # as in the paper: of the uniform distribution on [−0.25, 0.25]

    def _convolution(self, width, name):
        return keras.layers.Conv1D(
            self.num_filters, width, padding="same", activation="relu", dtype=self.dtype_policy, name=name
        )

    def build_encoder(self, shape):
        build_all(self.convolutions, shape)
        return self.num_filters * len(self.convolutions)

    def encode(self, embedded, mask, training=None):
        # Padding is zero, like the positions outside a text without padding.
        embedded = ops.where(mask[:, :, None], embedded, ops.zeros_like(embedded))
        return ops.concatenate([convolution(embedded) for convolution in self.convolutions], axis=-1)
