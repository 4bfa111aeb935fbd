"""A Transformer encoder, pooled."""

import keras
from keras import ops

from zoo.models.catalog.classifiers import TransformerClassifierOptions
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.base import build_all, real
from zoo.models.shared.transformer_layers import TransformerLayers, run_encoder_blocks


@keras.saving.register_keras_serializable(package="attention_zoo")
class TransformerClassifier(ClassifierModel):
    """Encoder of a Transformer whose vectors are pooled.

    Embeddings enter as `√D · E + P`, without `scale_embeddings` as `E + P`, or concatenated, `[E; P]`.

    Call arguments and results: see `ClassifierModel`; attention is that of each token to the others, in every layer.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1, https://arxiv.org/abs/1706.03762
    """

    attends = True

    options_class = TransformerClassifierOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy = self.dtype_policy
        make = TransformerLayers(self.options, policy, self.max_length)
        self.input_positions = make.input_positions()
        self.encoder_blocks = make.encoder_blocks()
        self.encoder_norm = make.final_norm("encoder_norm")

    def embedding_scale(self):
        return self.model_dim, self.model_dim**-0.5  # multiplied by √D, they have unit variance

    def build_encoder(self, shape):
        size = self.options.hidden_dim
        build_all([self.input_positions], shape)
        build_all([*self.encoder_blocks, self.encoder_norm], (*shape[:-1], size))
        return size

    def encode(self, embedded, mask, training=None):
        return self._encode(embedded, mask, training)[0]

    def _encode(self, embedded, mask, training=None, return_attention_scores=False):
        """Returns the vectors [B, S, D] and the weights of each layer, if asked for."""
        hidden = self.input_positions(embedded * self.options.embedding_factor)
        hidden = self.dropout_layer(hidden, training=training)
        return run_encoder_blocks(
            self.encoder_blocks, hidden, self.encoder_norm, return_attention_scores, mask=mask, training=training
        )

    def attention(self, tokens):
        _, weights = self._encode(self.embed(tokens), real(tokens), return_attention_scores=True)
        return ops.stack(weights, axis=1)
