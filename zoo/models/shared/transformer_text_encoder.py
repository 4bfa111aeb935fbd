"""A Transformer encoder that makes one vector of a text."""

import keras
from keras import ops

from zoo.layers.core.normalization import make_normalization
from zoo.models.shared.base import build_all, real
from zoo.models.shared.text_encoder import TextEncoder
from zoo.models.shared.transformer_layers import TransformerLayers, run_encoder_blocks
from zoo.vocabulary import END


class TransformerTextEncoder(TextEncoder):
    """Base of the models that pool the vectors of a Transformer's encoder.

    Embeddings enter as `√D · E + P`, without `scale_embeddings` as `E + P`, or concatenated, `[E; P]`; with
    `num_segments` a vector for the segment is added, and with `embedding_norm` the sum is normalised. What is pooled
    becomes `g(W x + b)` with a `projection_dim`.
    """

    attends = True

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy = self.dtype_policy
        make = TransformerLayers(self.options, policy, self.max_length)
        self.input_positions = make.input_positions()
        self.segment_embedding = self.embedding_normalization = self.projection = None
        if self.num_segments:
            self.segment_embedding = keras.layers.Embedding(
                self.num_segments, self.options.hidden_dim, dtype=policy, name="segment_embedding"
            )
        if self.embedding_norm:
            self.embedding_normalization = make_normalization(
                self.normalization, epsilon=self.epsilon, dtype=policy, name="embedding_norm"
            )
        self.encoder_blocks = make.encoder_blocks()
        self.encoder_norm = make.final_norm("encoder_norm")
        if self.projection_dim:
            self.projection = keras.layers.Dense(
                self.projection_dim, self.projection_activation, dtype=policy, name="projection"
            )

    def embedding_scale(self):
        return self.model_dim, self.model_dim**-0.5  # multiplied by √D, they have unit variance

    def build_encoder(self, shape):
        size = self.options.hidden_dim
        build_all([self.input_positions], shape)
        build_all([self.segment_embedding], (None, None))
        build_all([self.embedding_normalization, *self.encoder_blocks, self.encoder_norm], (*shape[:-1], size))
        return size

    def build_summary(self):
        build_all([self.projection], (None, super().build_summary()))
        return self.vector_dim

    @property
    def vector_dim(self):
        """Size of the vector of a text."""
        return self.projection_dim or self.options.hidden_dim

    def represent(self, tokens, training=None):
        mask = real(tokens)
        encoded, _ = self._encode(tokens, mask, training)
        return ops.where(mask[:, :, None], encoded, ops.zeros_like(encoded))

    def _encode(self, tokens, mask, training=None, return_attention_scores=False):
        """Returns the vectors [B, S, D] and the weights of each layer, if asked for."""
        hidden = self.input_positions(self.embed(tokens, training) * self.options.embedding_factor)
        if self.segment_embedding is not None:
            hidden = hidden + self.segment_embedding(segments(tokens, self.num_segments))
        if self.embedding_normalization is not None:
            hidden = self.embedding_normalization(hidden)
        hidden = self.dropout_layer(hidden, training=training)
        return run_encoder_blocks(
            self.encoder_blocks, hidden, self.encoder_norm, return_attention_scores, mask=mask, training=training
        )

    def summarize(self, tokens, training=None):
        vectors = super().summarize(tokens, training)
        return vectors if self.projection is None else self.projection(vectors)

    def attention(self, tokens):
        _, weights = self._encode(tokens, real(tokens), return_attention_scores=True)
        return ops.stack(weights, axis=1)


def segments(tokens, count):
    """Returns the segment of each token, int32 [B, S], 0 to `count - 1`: a new one begins after each end token.

    Reference:
        Devlin et al. 2019, "BERT", section 3, figure 2, https://arxiv.org/abs/1810.04805
    """
    ends = ops.cast(ops.equal(tokens, END), "int32")
    return ops.minimum(ops.cumsum(ends, axis=1) - ends, count - 1)
