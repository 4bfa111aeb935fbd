"""A hierarchical attention network: words form sentences, and sentences form a text."""

import keras
from keras import ops

from zoo import layers
from zoo.models.catalog.classifiers import HierarchicalClassifierOptions
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.base import padding_mask
from zoo.vocabulary import END


@keras.saving.register_keras_serializable(package="attention_zoo")
class HierarchicalClassifier(ClassifierModel):
    """Words in sentences, sentences in a text, with attention at both levels.

    For the words t of sentence i, `h_t = [→h_t; ←h_t]`, where each direction is a GRU that is reset at every sentence;
    `α_it = softmax_t(v · tanh(W h_t + b))` within the sentence; `s_i = Σ_t α_it h_t`. Sentences likewise: `h_i` is a
    bidirectional GRU over s, `β_i = softmax_i(v' · tanh(W' h_i + b'))`, and the vector of the text is `Σ_i β_i h_i`.

    A sentence ends with a token of `sentence_ends`, or with the last of several in a row. These tokens are part of the
    configuration, so that a text has the same sentences wherever the model runs. Sentences are not truncated: all
    tokens after the `max_sentences`-th sentence belong to it.

    Call arguments and results: see `ClassifierModel`. Attention has two layers of one head: within sentences, where row
    t contains the weights of the words in t's sentence, and within the text, where every row is `β_i α_it`, whose sum
    over the words of a sentence is β_i.

    Reference:
        Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2,
        https://aclanthology.org/N16-1174
    """

    attends = True
    options_class = HierarchicalClassifierOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy = {"dtype": self.dtype_policy}
        self.word_encoder = self._make_encoder("word_encoder")
        self.sentence_pooling = layers.SegmentPooling(self.max_sentences, name="sentence_pooling", **policy)
        self.sentence_encoder = self._make_encoder("sentence_encoder")

    def _make_encoder(self, name):
        return layers.BidirectionalEncoder(self.units, cell_type=self.cell_type, dtype=self.dtype_policy, name=name)

    def build_encoder(self, shape):
        size = 2 * self.units
        self.word_encoder.build(shape)
        self.sentence_pooling.build((None, None, size))
        self.sentence_encoder.build((None, self.max_sentences, size))
        return size

    def sentences(self, tokens):
        """Returns the index of each token's sentence, int32 [B, S] from tokens [B, S]."""
        end_ids = ops.convert_to_tensor([END, *self.options.end_ids], dtype=tokens.dtype)
        ends = ops.cast(ops.any(ops.equal(tokens[:, :, None], end_ids), axis=-1), "int32")
        following = ops.concatenate([ends[:, 1:], ops.zeros_like(ends[:, :1])], axis=1)
        last = ends * (1 - following)  # the last of several ends in a row
        return ops.minimum(ops.cumsum(last, axis=1) - last, self.max_sentences - 1)

    def represent(self, tokens, training=None):
        return self._encode_words(tokens, self.sentences(tokens), training)

    def _encode_words(self, tokens, sentences, training=None):
        embedded = self.embed(tokens, training)
        return self.word_encoder(embedded, mask=padding_mask(tokens), segments=sentences, training=training)

    def _encode_sentences(self, tokens, training=None):
        """Returns the vectors of the sentences [B, L, D], their mask [B, L] and α [B, L, S]."""
        sentences = self.sentences(tokens)
        words = self._encode_words(tokens, sentences, training)
        mask = self.pooling_dropout_layer(padding_mask(tokens), training=training)
        pooled, weights = self.sentence_pooling(words, sentences, mask=mask, return_attention_scores=True)
        present = ops.any(weights > 0, axis=-1)
        return self.sentence_encoder(pooled, mask=present, training=training), present, weights

    def call(self, inputs, training=None):
        encoded, present, _ = self._encode_sentences(inputs["tokens"], training)
        pooled = self.pooling_layer(encoded, mask=present)
        return self.output_dense(self.dropout_layer(pooled, training=training))

    def attention(self, tokens):
        encoded, present, word_weights = self._encode_sentences(tokens)
        _, sentence_weights = self.pooling_layer(encoded, mask=present, return_attention_scores=True)  # [B, 1, L]
        own = ops.one_hot(self.sentences(tokens), self.max_sentences, dtype=word_weights.dtype)  # [B, S, L]
        rows = ops.cast(padding_mask(tokens), word_weights.dtype)[:, :, None]
        levels = [rows * ops.matmul(own, word_weights), rows * ops.matmul(sentence_weights, word_weights)]
        return ops.stack(levels, axis=1)[:, :, None]  # [B, 2 layers, 1 head, S, S]
