"""Convolutions over words, and the largest value of each."""

import keras
from keras import ops

from zoo.errors import InputError
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.checks import check_sizes


@keras.saving.register_keras_serializable(package="attention_zoo")
class CNNClassifier(ClassifierModel):
    """One layer of convolutions of several widths, pooled over time.

    `c_t = [relu(W_h x_{t … t+h−1} + b_h) for each width h]`, around the token t and with zeros beyond the text;
    `logits = W dropout(max_t c_t) + b`.

    Args:
        vocab_size: Number of symbols.
        num_classes: Number of classes.
        embedding_dim: Size of the embeddings.
        filter_widths: Tokens that a filter sees, for each kind of filter: a list of integers, or their text `"3,4,5"`.
        num_filters: Filters of each width.
        pooling: See `ClassifierModel`; the paper's is `"max"`.
        dropout: Rate of dropout on the vector of the text.
        embedding_dropout: See `ClassifierModel`.
        word_dropout: See `ClassifierModel`.

    Call arguments and results: see `ClassifierModel`.

    Reference:
        Kim 2014, "Convolutional Neural Networks for Sentence Classification", section 2,
        https://aclanthology.org/D14-1181
    """

    def __init__(
        self,
        vocab_size,
        num_classes,
        embedding_dim=300,
        filter_widths="3,4,5",
        num_filters=100,
        pooling="max",
        dropout=0.5,
        embedding_dropout=0.0,
        word_dropout=0.0,
        **kwargs,
    ):
        filter_widths = _parse_widths(filter_widths)
        check_sizes(embedding_dim=embedding_dim, num_filters=num_filters)
        super().__init__(
            vocab_size,
            num_classes,
            embedding_dim,
            # As uniform in [−0.25, 0.25], the paper's choice.
            embedding_stddev=0.144,
            pooling=pooling,
            dropout=dropout,
            embedding_dropout=embedding_dropout,
            word_dropout=word_dropout,
            **kwargs,
        )
        self.embedding_dim = embedding_dim
        self.filter_widths = filter_widths
        self.num_filters = num_filters
        self.convolutions = [self._convolution(width, f"convolution_{width}") for width in filter_widths]

    def _convolution(self, width, name):
        return keras.layers.Conv1D(
            self.num_filters, width, padding="same", activation="relu", dtype=self.dtype_policy, name=name
        )

    def build_encoder(self, shape):
        for convolution in self.convolutions:
            convolution.build(shape)
        return self.num_filters * len(self.filter_widths)

    def encode(self, embedded, mask, training=None):
        # Zeros, as they stand beyond both ends of a text that is not padded.
        embedded = ops.where(mask[:, :, None], embedded, ops.zeros_like(embedded))
        return ops.concatenate([convolution(embedded) for convolution in self.convolutions], axis=-1)

    def get_config(self):
        names = ("embedding_dim", "filter_widths", "num_filters")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _parse_widths(widths):
    """Returns the widths of the filters as a list of integers.

    Args:
        widths: Integers, or their text with commas between them.

    Raises:
        InputError: If it is not that.
    """
    try:
        parsed = [int(width) for width in (widths.split(",") if isinstance(widths, str) else widths)]
    except (TypeError, ValueError):
        parsed = []
    if not parsed or min(parsed) < 1 or len(set(parsed)) < len(parsed):
        raise InputError(
            f"`filter_widths` must be different positive integers, such as '3,4,5'. Received: filter_widths={widths!r}."
        )
    return parsed
