"""A Transformer encoder for vectors of sentences."""

import keras
from keras import ops

from zoo.models.catalog.sentence_encoders import SentenceEncoderOptions
from zoo.models.shared.text_encoder import TransformerTextEncoder

_MIN_NORM = 1e-12


@keras.saving.register_keras_serializable(package="attention_zoo")
class SentenceEncoder(TransformerTextEncoder):
    """Transformer encoder that computes one vector for a text, see `TransformerTextEncoder`.

    With `normalize`, `v = u / max(|u|, 10⁻¹²)`.

    Call arguments:
        inputs: Dict with `tokens` [B, S].
        training: Whether dropout is active.

    Returns:
        [B, D], or [B, `projection_dim`].

    Reference:
        Reimers and Gurevych 2019, "Sentence-BERT", section 3, https://arxiv.org/abs/1908.10084
    """

    options_class = SentenceEncoderOptions

    def build(self, input_shape=None):
        self.build_summary()
        self.built = True

    def call(self, inputs, training=None):
        vectors = self.summarize(inputs["tokens"], training=training)
        if not self.normalize:
            return vectors
        wide = ops.cast(vectors, "float32")
        norms = ops.sqrt(ops.sum(ops.square(wide), axis=-1, keepdims=True))
        return ops.cast(wide / ops.maximum(norms, _MIN_NORM), vectors.dtype)
