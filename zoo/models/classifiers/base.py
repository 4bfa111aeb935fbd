"""The base class of the classifiers of text."""

import keras

from zoo.models.shared.text_encoder import TextEncoder


class ClassifierModel(TextEncoder):
    """Base of the classifiers: `logits = W dropout(pool(encode(E tokens))) + b`; see `TextEncoder`.

    Call arguments:
        inputs: `tokens` [B, S], an array or a dict.
        training: Whether dropout is active.

    Returns:
        Logits [B, C].
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.output_dense = keras.layers.Dense(self.num_classes, name="output", dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.output_dense.build((None, self.build_summary()))
        self.built = True

    def call(self, inputs, training=None):
        vectors = self.summarize(inputs["tokens"], training=training)
        return self.output_dense(self.dropout_layer(vectors, training=training))
