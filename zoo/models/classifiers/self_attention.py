"""One layer of self-attention with a single head and pooling."""

import keras

from zoo.models.catalog.classifiers import SelfAttentionClassifierOptions
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.base import build_all, padding_mask
from zoo.models.shared.transformer_layers import TransformerLayers


@keras.saving.register_keras_serializable(package="attention_zoo")
class SelfAttentionClassifier(ClassifierModel):
    """The smallest model that reads words in context: one self-attention layer with one head.

    `c = x + attention(x)`, `h = relu(W c + b)`, `logits = V max_t h_t + d`. A feature of `h` can represent a word
    together with the cue that it attends to; without the nonlinearity, a mean over the tokens would sum words and cues
    independently. `x = √D · E + P`, or `E + P` without `scale_embeddings`, or `[E; P]`; without `output_projection`,
    `attention(x) = softmax(Q Kᵀ / √d_k) V`.

    Call arguments and results: see `ClassifierModel`; attention has one layer and one head.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2, https://arxiv.org/abs/1706.03762
    """

    attends = True
    options_class = SelfAttentionClassifierOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy = self.dtype_policy
        make = TransformerLayers(self.options.single_layer(), policy, self.max_length)
        self.input_positions = make.input_positions()
        (positions,) = make.attention_positions(causal=False)
        self.attention_layer = make.full_attention("attention", positions)
        self.hidden_dense = keras.layers.Dense(self.options.hidden_dim, activation="relu", dtype=policy, name="hidden")

    def embedding_scale(self):
        return self.model_dim, self.model_dim**-0.5  # multiplied by √D, they have unit variance

    def build_encoder(self, shape):
        build_all([self.input_positions], shape)
        shape = (*shape[:-1], self.options.hidden_dim)
        build_all([self.hidden_dense], shape)
        self.attention_layer.build(shape, shape)
        return self.options.hidden_dim

    def _attend(self, embedded, mask, training=None, return_attention_scores=False):
        """Returns the inputs of the attention, its results, and its weights if requested."""
        inputs = self.input_positions(embedded * self.options.embedding_factor)
        attended = self.attention_layer(
            inputs,
            inputs,
            query_mask=mask,
            value_mask=mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        return (inputs, *attended) if return_attention_scores else (inputs, attended)

    def encode(self, embedded, mask, training=None):
        inputs, attended = self._attend(embedded, mask, training)
        return self.hidden_dense(inputs + self.dropout_layer(attended, training=training))

    def attention(self, tokens):
        _, _, weights = self._attend(self.embed(tokens), padding_mask(tokens), return_attention_scores=True)
        return weights[:, None]  # [B, 1 layer, 1 head, S, S]
