"""A Transformer encoder with pooling."""

import keras

from zoo.models.catalog.classifiers import TransformerClassifierOptions
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.text_encoder import TransformerTextEncoder


@keras.saving.register_keras_serializable(package="attention_zoo")
class TransformerClassifier(TransformerTextEncoder, ClassifierModel):
    """Transformer encoder with pooling, see `TransformerTextEncoder`.

    Call arguments and results: see `ClassifierModel`; attention is the self-attention of every layer.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1, https://arxiv.org/abs/1706.03762;
        Devlin et al. 2019, "BERT", section 3 (segments, and the first vector), https://arxiv.org/abs/1810.04805
    """

    options_class = TransformerClassifierOptions
