"""Bases of the models that compute one vector for a text: classifiers and sentence encoders."""

import keras
from keras import ops

from zoo.layers.core.dropout import Dropout
from zoo.models.shared.base import ZooModel, build_all, padding_mask
from zoo.models.shared.embeddings import Embedding
from zoo.models.shared.pooling import TokenDropout, WordDropout, make_pooling
from zoo.models.shared.transformer_layers import TransformerLayers, run_encoder_blocks
from zoo.vocabulary import END


class TextEncoder(ZooModel):
    """Base of the models that compute one vector for a text: `pool(encode(E tokens))`.

    A model computes a vector for each token, contextual unless the architecture has no context, and pools them. Ids are
    int32, padded with 0 at the end; every text has at least one token (its end token). A subclass overrides `encode`
    and `build_encoder`, and `attention` if it has any.

    Attributes:
        attends: Whether the model has attention weights.
    """

    attends = False

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy = {"dtype": self.dtype_policy}
        embedding_size, stddev = self.embedding_scale()
        self.word_dropout_layer = WordDropout(self.word_dropout, name="word_dropout", **policy)
        self.embedding = Embedding(
            self.vocab_size,
            embedding_size,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=stddev),
            name="embedding",
            **policy,
        )
        self.embedding_dropout_layer = Dropout(self.embedding_dropout, name="embedding_dropout", **policy)
        self.pooling_layer = make_pooling(self.pooling, name="pooling", **policy)
        self.pooling_dropout_layer = TokenDropout(self.pooling_dropout, name="pooling_dropout", **policy)
        self.dropout_layer = Dropout(self.dropout, name="dropout", **policy)

    def embedding_scale(self):
        """Returns the size of the embeddings, E, and their initial standard deviation."""
        return self.embedding_dim, 0.05

    def build_encoder(self, shape):
        """Builds the layers of `encode` for embeddings [B, S, E].

        Returns:
            The size of the vectors that `encode` returns, D.
        """
        raise NotImplementedError

    def build_summary(self):
        """Builds the layers of `summarize`, and returns the size of the vector of a text."""
        self.embedding.build((None, None))
        size = self.build_encoder((None, None, self.embedding.output_dim))
        self.pooling_layer.build((None, None, size))
        return size

    def embed(self, tokens, training=None):
        """Returns the embeddings [B, S, E] of tokens [B, S], in training with dropout."""
        embedded = self.embedding(self.word_dropout_layer(tokens, training=training))
        return self.embedding_dropout_layer(embedded, training=training)

    def encode(self, embedded, mask, training=None):
        """Returns a vector for each token, [B, S, D] from [B, S, E]; vectors of padding are arbitrary."""
        raise NotImplementedError

    def represent(self, tokens, training=None):
        """Returns the contextual vector of each token, [B, S, D] from [B, S], zero at padding."""
        mask = padding_mask(tokens)
        encoded = self.encode(self.embed(tokens, training), mask, training)
        return ops.where(mask[:, :, None], encoded, ops.zeros_like(encoded))

    def summarize(self, tokens, training=None):
        """Returns one vector for each text, [B, D'] from tokens [B, S]."""
        mask = self.pooling_dropout_layer(padding_mask(tokens), training=training)
        return self.pooling_layer(self.represent(tokens, training=training), mask=mask)

    @property
    def attention_kinds(self):
        """The keys of the result of `attentions`."""
        return ("encoder",) if self.attends else ()

    def attentions(self, tokens):
        """Returns the weights of each kind of attention in the model, a dict: `encoder` or nothing."""
        return {"encoder": self.attention(tokens)} if self.attends else {}

    def attention(self, tokens):
        """Returns the attention weights [B, layers, heads, S, S]; padding has weight 0, as query and as key."""
        raise NotImplementedError(f"{type(self).__name__} has no attention.")


class TransformerTextEncoder(TextEncoder):
    """Base of the models that pool the vectors of a Transformer encoder.

    The inputs of the first block are `√D · E + P`, or `E + P` without `scale_embeddings`, or concatenated, `[E; P]`.
    With `num_segments` a vector of the segment is added, and with `embedding_norm` the sum is normalised. With a
    `projection_dim` the result of pooling, x, is projected, `g(W x + b)`.
    """

    attends = True

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy = self.dtype_policy
        make = TransformerLayers(self.options, policy, self.max_length)
        self.input_positions = make.input_positions()
        self.segment_embedding = self.projection = None
        if self.num_segments:
            self.segment_embedding = Embedding(
                self.num_segments, self.options.hidden_dim, dtype=policy, name="segment_embedding"
            )
        self.embedding_normalization = make.norm("embedding_norm") if self.embedding_norm else None
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
        mask = padding_mask(tokens)
        encoded, _ = self._encode(tokens, mask, training)
        return ops.where(mask[:, :, None], encoded, ops.zeros_like(encoded))

    def _encode(self, tokens, mask, training=None, return_attention_scores=False):
        """Returns the vectors [B, S, D], and the weights of each layer if requested."""
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
        _, weights = self._encode(tokens, padding_mask(tokens), return_attention_scores=True)
        return ops.stack(weights, axis=1)


def segments(tokens, count):
    """Returns the segment of each token, int32 [B, S], 0 to `count - 1`; each end token ends a segment.

    Reference:
        Devlin et al. 2019, "BERT", section 3, figure 2, https://arxiv.org/abs/1810.04805
    """
    ends = ops.cast(ops.equal(tokens, END), "int32")
    return ops.minimum(ops.cumsum(ends, axis=1) - ends, count - 1)
