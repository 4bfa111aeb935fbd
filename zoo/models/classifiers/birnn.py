"""A bidirectional recurrent encoder, pooled."""

import keras
from keras import ops

from zoo import layers
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.checks import check_choice, check_sizes
from zoo.models.shared.padding import real


@keras.saving.register_keras_serializable(package="attention_zoo")
class BiRNNClassifier(ClassifierModel):
    """Bidirectional GRU or LSTM, with or without attention in its pooling.

    `h_t = [→h_t; ←h_t]`; with `pooling="attention"` the vector of the text is `Σ_t α_t h_t`, where
    `α = softmax_t(v · tanh(W h_t + b))`.

    Args:
        vocab_size: Number of symbols.
        num_classes: Number of classes.
        embedding_dim: Size of the embeddings.
        units: Size of the state of each direction.
        num_layers: Recurrent layers, one on top of the other.
        cell_type: `"gru"` or `"lstm"`.
        pooling: See `ClassifierModel`.
        dropout: Rate of dropout between the recurrent layers and on the vector of the text.
        embedding_dropout: See `ClassifierModel`.
        word_dropout: See `ClassifierModel`.

    Call arguments and results: see `ClassifierModel`; attention, where it pools, has one layer and one head, and the
    same row for every token.

    Reference:
        Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2 (the word level),
        https://aclanthology.org/N16-1174;
        Schuster and Paliwal 1997, "Bidirectional Recurrent Neural Networks", https://doi.org/10.1109/78.650093
    """

    def __init__(
        self,
        vocab_size,
        num_classes,
        embedding_dim=200,
        units=50,
        num_layers=1,
        cell_type="gru",
        pooling="attention",
        dropout=0.0,
        embedding_dropout=0.0,
        word_dropout=0.0,
        **kwargs,
    ):
        check_sizes(embedding_dim=embedding_dim, units=units, num_layers=num_layers)
        check_choice("cell_type", cell_type, ("gru", "lstm"))
        super().__init__(
            vocab_size,
            num_classes,
            embedding_dim,
            pooling=pooling,
            dropout=dropout,
            embedding_dropout=embedding_dropout,
            word_dropout=word_dropout,
            **kwargs,
        )
        self.embedding_dim = embedding_dim
        self.units = units
        self.num_layers = num_layers
        self.cell_type = cell_type
        self.attends = pooling == "attention"
        self.encoder = layers.BidirectionalEncoder(
            units, num_layers, cell_type, dropout=dropout, dtype=self.dtype_policy, name="encoder"
        )

    def build_encoder(self, shape):
        self.encoder.build(shape)
        return 2 * self.units

    def encode(self, embedded, mask, training=None):
        return self.encoder(embedded, mask=mask, training=training)

    def attention(self, tokens):
        if not self.attends:
            return super().attention(tokens)
        mask = real(tokens)
        _, weights = self.pooling_layer(self.represent(tokens), mask=mask, return_attention_scores=True)  # [B, 1, S]
        rows = ops.cast(mask, weights.dtype)[:, :, None]
        return (rows * weights)[:, None, None]  # [B, 1 layer, 1 head, S, S]

    def get_config(self):
        names = ("embedding_dim", "units", "num_layers", "cell_type")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
