"""A Transformer encoder, pooled."""

import keras
from keras import ops

from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared import transformer_parts as parts
from zoo.models.shared.checks import check_sizes
from zoo.models.shared.padding import real
from zoo.models.shared.transformer_options import AttentionOptions


@keras.saving.register_keras_serializable(package="attention_zoo")
class TransformerClassifier(ClassifierModel):
    """Encoder of a Transformer whose vectors are pooled.

    Args:
        vocab_size: Number of symbols.
        num_classes: Number of classes.
        pooling: See `ClassifierModel`.
        embedding_dropout: Rate of dropout on the embeddings alone, before their positions.
        word_dropout: See `ClassifierModel`.
        max_length: Rows of a table of learned positions; in longer texts all behind the last row take that row.
        **kwargs: The options of `zoo.models.shared.transformer_options.AttentionOptions`, of which `dropout` acts on
            the vector of the text as well; and those of `keras.Model`.

    Call arguments and results: see `ClassifierModel`; attention is that of each token to the others, in every layer.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1, https://arxiv.org/abs/1706.03762
    """

    attends = True

    def __init__(
        self,
        vocab_size,
        num_classes,
        pooling="mean",
        embedding_dropout=0.0,
        word_dropout=0.0,
        max_length=512,
        **kwargs,
    ):
        options, kwargs = AttentionOptions.take(kwargs)
        check_sizes(max_length=max_length)
        super().__init__(
            vocab_size,
            num_classes,
            options.model_dim,
            # Scaled by √D, embeddings have unit variance.
            embedding_stddev=options.model_dim**-0.5,
            pooling=pooling,
            dropout=options.dropout,
            embedding_dropout=embedding_dropout,
            word_dropout=word_dropout,
            **kwargs,
        )
        parts.set_options(self, options)
        self.max_length = max_length
        policy = self.dtype_policy
        self.input_positions = parts.InputPositions(options.positions, max_length, dtype=policy, name="positions")
        self.encoder_blocks = parts.encoder_blocks(options, policy)
        self.encoder_norm = parts.final_norm(options, "encoder_norm", policy)

    def build_encoder(self, shape):
        self.input_positions.build(shape)
        for block in self.encoder_blocks:
            block.build(shape)
        if self.encoder_norm is not None:
            self.encoder_norm.build(shape)
        return self.model_dim

    def encode(self, embedded, mask, training=None):
        return self._encode(embedded, mask, training)[0]

    def _encode(self, embedded, mask, training=None, return_attention_scores=False):
        """Returns the vectors [B, S, D] and the weights of each layer, if they are asked for."""
        hidden, weights = self.input_positions(embedded * self.model_dim**0.5), []
        hidden = self.dropout_layer(hidden, training=training)
        for block in self.encoder_blocks:
            hidden = block(hidden, mask=mask, return_attention_scores=return_attention_scores, training=training)
            if return_attention_scores:
                hidden, scores = hidden
                weights.append(scores)
        return hidden if self.encoder_norm is None else self.encoder_norm(hidden), weights

    def attention(self, tokens):
        _, weights = self._encode(self.embed(tokens), real(tokens), return_attention_scores=True)
        return ops.stack(weights, axis=1)

    def get_config(self):
        return {**super().get_config(), **self.options.config(), "max_length": self.max_length}
