"""One layer of self-attention with a single head, pooled."""

import keras

from zoo.models.catalog.classifiers import SelfAttentionClassifierOptions
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared import transformer_parts as parts
from zoo.models.shared.padding import real


@keras.saving.register_keras_serializable(package="attention_zoo")
class SelfAttentionClassifier(ClassifierModel):
    """The smallest model that reads a word in its context: one self-attention layer with one head.

    `c = x + attention(x)`, `h = relu(W c + b)`, `logits = V max_t h_t + d`. A feature of `h` can stand for a word
    together with the cue that it attends to; without the nonlinearity a mean over the tokens would add up words and
    cues apart, and not see which belong together.

    Call arguments and results: see `ClassifierModel`; attention has one layer and one head.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2, https://arxiv.org/abs/1706.03762
    """

    attends = True

    options_class = SelfAttentionClassifierOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy, layer = self.dtype_policy, self.options.single_layer()
        self.input_positions = parts.InputPositions(self.positions, self.max_length, dtype=policy, name="positions")
        (positions,) = parts.attention_positions(layer, causal=False, dtype=policy)
        self.attention_layer = parts.full_attention(layer, "attention", policy, positions)
        self.hidden_dense = keras.layers.Dense(self.model_dim, activation="relu", dtype=policy, name="hidden")

    def embedding_scale(self):
        return self.model_dim, self.model_dim**-0.5  # multiplied by √D, they have unit variance

    def build_encoder(self, shape):
        self.input_positions.build(shape)
        self.attention_layer.build(shape, shape)
        self.hidden_dense.build(shape)
        return self.model_dim

    def _attend(self, embedded, mask, training=None, return_attention_scores=False):
        """Returns the embeddings with their positions, what attention made of them, and its weights if asked for."""
        inputs = self.input_positions(embedded * self.model_dim**0.5)
        found = self.attention_layer(
            inputs,
            inputs,
            query_mask=mask,
            value_mask=mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        return (inputs, *found) if return_attention_scores else (inputs, found)

    def encode(self, embedded, mask, training=None):
        inputs, found = self._attend(embedded, mask, training)
        return self.hidden_dense(inputs + self.dropout_layer(found, training=training))

    def attention(self, tokens):
        _, _, weights = self._attend(self.embed(tokens), real(tokens), return_attention_scores=True)
        return weights[:, None]  # [B, 1 layer, 1 head, S, S]
