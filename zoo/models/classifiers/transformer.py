"""A Transformer encoder, pooled."""

import keras

from zoo.models.catalog.classifiers import TransformerClassifierOptions
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.transformer_text_encoder import TransformerTextEncoder


@keras.saving.register_keras_serializable(package="attention_zoo")
class TransformerClassifier(TransformerTextEncoder, ClassifierModel):
    """Encoder of a Transformer whose vectors are pooled; see `TransformerTextEncoder`.

    Call arguments and results: see `ClassifierModel`; attention is that of each token to the others, in every layer.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1, https://arxiv.org/abs/1706.03762;
        Devlin et al. 2019, "BERT", section 3 (segments, and the first vector), https://arxiv.org/abs/1810.04805
    """

    options_class = TransformerClassifierOptions
