"""A bidirectional recurrent encoder with pooling."""

import keras
from keras import ops

from zoo import layers
from zoo.models.catalog.classifiers import BiRNNClassifierOptions
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.base import padding_mask


@keras.saving.register_keras_serializable(package="attention_zoo")
class BiRNNClassifier(ClassifierModel):
    """Bidirectional GRU or LSTM, pooled with or without attention.

    `h_t = [→h_t; ←h_t]`; with `pooling="attention"` the vector of the text is `Σ_t α_t h_t`, where
    `α = softmax_t(v · tanh(W h_t + b))`.

    Call arguments and results: see `ClassifierModel`; attention, if it is the pooling, has one layer and one head, and
    the same row for every token.

    Reference:
        Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2 (the word level),
        https://aclanthology.org/N16-1174;
        Schuster and Paliwal 1997, "Bidirectional Recurrent Neural Networks", https://doi.org/10.1109/78.650093
    """

    options_class = BiRNNClassifierOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.attends = self.pooling == "attention"
        self.encoder = layers.BidirectionalEncoder(
            self.units, self.num_layers, self.cell_type, self.dropout, dtype=self.dtype_policy, name="encoder"
        )

    def build_encoder(self, shape):
        self.encoder.build(shape)
        return 2 * self.units

    def encode(self, embedded, mask, training=None):
        return self.encoder(embedded, mask=mask, training=training)

    def attention(self, tokens):
        if not self.attends:
            return super().attention(tokens)
        mask = padding_mask(tokens)
        _, weights = self.pooling_layer(self.represent(tokens), mask=mask, return_attention_scores=True)  # [B, 1, S]
        rows = ops.cast(mask, weights.dtype)[:, :, None]
        return (rows * weights)[:, None, None]  # [B, 1 layer, 1 head, S, S]
