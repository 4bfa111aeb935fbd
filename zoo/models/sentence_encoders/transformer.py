"""A Transformer encoder whose vectors are those of sentences."""

import keras
from keras import ops

from zoo.models.catalog.sentence_encoders import SentenceEncoderOptions
from zoo.models.shared.transformer_text_encoder import TransformerTextEncoder

_SHORTEST = 1e-12


@keras.saving.register_keras_serializable(package="attention_zoo")
class SentenceEncoder(TransformerTextEncoder):
    """Encoder of a Transformer whose vectors are pooled to one for a text; see `TransformerTextEncoder`.

    With `normalize`, `v = u / max(|u|, 10⁻¹²)`.

    Call arguments:
        inputs: Dict with `tokens` [B, S].
        training: Whether dropout is active.

    Returns:
        [B, D], or with a `projection_dim` of that size.

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
        lengths = ops.sqrt(ops.sum(ops.square(wide), axis=-1, keepdims=True))
        return ops.cast(wide / ops.maximum(lengths, _SHORTEST), vectors.dtype)
