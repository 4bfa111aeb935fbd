"""One layer of self-attention with a single head, pooled."""

import keras

from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared import transformer_parts as parts
from zoo.models.shared.checks import check_sizes
from zoo.models.shared.padding import real
from zoo.models.shared.transformer_options import AttentionOptions


@keras.saving.register_keras_serializable(package="attention_zoo")
class SelfAttentionClassifier(ClassifierModel):
    """The smallest model that reads a word in its context: one self-attention layer with one head.

    `c = x + attention(x)`, `h = relu(W c + b)`, `logits = V max_t h_t + d`. A feature of `h` can stand for a word
    together with the cue that it attends to; without the nonlinearity a mean over the tokens would add up words and
    cues apart, and not see which belong together.

    Args:
        vocab_size: Number of symbols.
        num_classes: Number of classes.
        model_dim: Size of the embeddings and of all activations, D.
        score: How queries and keys are compared: a name that `zoo.layers.scores.get_score` knows.
        positions: See `zoo.models.shared.transformer_options.AttentionOptions`.
        max_distance: Likewise.
        max_length: Rows of a table of learned positions; in longer texts all behind the last row take that row.
        pooling: See `ClassifierModel`.
        dropout: Rate of dropout on the result of the attention and on the vector of the text.
        attention_dropout: Rate of dropout on the attention weights.
        embedding_dropout: See `ClassifierModel`.
        word_dropout: See `ClassifierModel`.

    Call arguments and results: see `ClassifierModel`; attention has one layer and one head.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2, https://arxiv.org/abs/1706.03762
    """

    attends = True

    def __init__(
        self,
        vocab_size,
        num_classes,
        model_dim=64,
        score="scaled_dot",
        positions="relative",
        max_distance=0,
        max_length=512,
        pooling="max",
        dropout=0.1,
        attention_dropout=0.0,
        embedding_dropout=0.0,
        word_dropout=0.1,
        **kwargs,
    ):
        options = AttentionOptions(
            num_layers=1,
            model_dim=model_dim,
            num_heads=1,
            dropout=dropout,
            attention_dropout=attention_dropout,
            score=score,
            positions=positions,
            max_distance=max_distance,
        )
        check_sizes(max_length=max_length)
        super().__init__(
            vocab_size,
            num_classes,
            model_dim,
            # Scaled by √D, embeddings have unit variance.
            embedding_stddev=model_dim**-0.5,
            pooling=pooling,
            dropout=dropout,
            embedding_dropout=embedding_dropout,
            word_dropout=word_dropout,
            **kwargs,
        )
        self.model_dim = model_dim
        self.score = score
        self.positions = positions
        self.max_distance = max_distance
        self.max_length = max_length
        self.attention_dropout = attention_dropout
        policy = self.dtype_policy
        self.input_positions = parts.InputPositions(positions, max_length, dtype=policy, name="positions")
        (places,) = parts.attention_positions(options, causal=False, dtype=policy)
        self.attention_layer = parts.full_attention(options, "attention", policy, places)
        self.hidden_dense = keras.layers.Dense(model_dim, activation="relu", dtype=policy, name="hidden")

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

    def get_config(self):
        names = ("model_dim", "score", "positions", "max_distance", "max_length", "attention_dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
