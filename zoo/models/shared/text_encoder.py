"""Models that make one vector of a text, of which classifiers and sentence encoders are made."""

import keras
from keras import ops

from zoo.layers.core.dropout import Dropout
from zoo.models.shared.base import ZooModel, real
from zoo.models.shared.pooling import TokenDropout, make_pooling
from zoo.models.shared.word_dropout import WordDropout


class TextEncoder(ZooModel):
    """Base of the models that make one vector of a text: `pool(encode(E tokens))`.

    A model maps each id to a vector, contextual unless the architecture has no context, and pools these. Ids are int32,
    padded with 0 at the end; every text has at least one (its end token). A subclass overrides `encode` and
    `build_encoder`, and `attention` if it has any.

    Attributes:
        attends: Whether the model has attention weights.
    """

    attends = False

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy = {"dtype": self.dtype_policy}
        embedding_size, deviation = self.embedding_scale()
        self.word_dropout_layer = WordDropout(self.word_dropout, name="word_dropout", **policy)
        self.embedding = keras.layers.Embedding(
            self.vocab_size,
            embedding_size,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=deviation),
            name="embedding",
            **policy,
        )
        self.embedding_dropout_layer = Dropout(self.embedding_dropout, name="embedding_dropout", **policy)
        self.pooling_layer = make_pooling(self.pooling, name="pooling", **policy)
        self.pooling_dropout_layer = TokenDropout(self.pooling_dropout, name="pooling_dropout", **policy)
        self.dropout_layer = Dropout(self.dropout, name="dropout", **policy)

    def embedding_scale(self):
        """Returns the size of the embeddings, E, and the standard deviation of the initial ones."""
        return self.embedding_dim, 0.05

    def build_encoder(self, shape):
        """Builds what `encode` uses, for embeddings [B, S, E].

        Returns:
            The size of the vectors that `encode` returns, D.
        """
        raise NotImplementedError

    def build_summary(self):
        """Builds all that `summarize` uses, and returns the size of the vector of a text."""
        self.embedding.build((None, None))
        size = self.build_encoder((None, None, self.embedding.output_dim))
        self.pooling_layer.build((None, None, size))
        return size

    def embed(self, tokens, training=None):
        """Returns the embeddings [B, S, E] of tokens [B, S], after the dropout of training."""
        embedded = self.embedding(self.word_dropout_layer(tokens, training=training))
        return self.embedding_dropout_layer(embedded, training=training)

    def encode(self, embedded, mask, training=None):
        """Returns a vector for each token, [B, S, D] from [B, S, E]; that of padding may be anything."""
        raise NotImplementedError

    def represent(self, tokens, training=None):
        """Returns the contextual vector of each token, [B, S, D] from [B, S], zero at padding."""
        mask = real(tokens)
        encoded = self.encode(self.embed(tokens, training), mask, training)
        return ops.where(mask[:, :, None], encoded, ops.zeros_like(encoded))

    def summarize(self, tokens, training=None):
        """Returns one vector for each text, [B, D'] from tokens [B, S]."""
        mask = self.pooling_dropout_layer(real(tokens), training=training)
        return self.pooling_layer(self.represent(tokens, training=training), mask=mask)

    @property
    def attention_kinds(self):
        """The keys of what `attentions` returns."""
        return ("encoder",) if self.attends else ()

    def attentions(self, tokens):
        """Returns the weights of each kind of attention that the model has, a dict: `encoder` or nothing."""
        return {"encoder": self.attention(tokens)} if self.attends else {}

    def attention(self, tokens):
        """Returns the attention weights [B, layers, heads, S, S]; padding has weight 0, as query and as key."""
        raise NotImplementedError(f"{type(self).__name__} has no attention.")
