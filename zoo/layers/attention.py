"""Single-head attention with a score function given as an object."""

import keras

from zoo.layers.base_attention import BaseAttention
from zoo.layers.scores import get_score
from zoo.layers.sharing import serialize_shared


@keras.saving.register_keras_serializable(package="attention_zoo")
class Attention(BaseAttention):
    """Single-head attention: `softmax(score(query, key)) · value`, without projections but the score's own.

    Args:
        score: What `get_score` takes: a `Score`, its name, or a callable or Keras layer f(query, key) → scores.
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; the output has the last axis of `value`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import Attention, ScaledDotScore
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 5), "float32")
        >>> Attention(ScaledDotScore())(query, value).shape
        TensorShape([2, 3, 5])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1,
        https://arxiv.org/abs/1508.04025
    """

    def __init__(self, score, **kwargs):
        super().__init__(**kwargs)
        self.score = get_score(score, dtype=self.dtype_policy)

    def build(self, query_shape, value_shape=None, key_shape=None):
        key_shape = key_shape or value_shape
        self.memory_sizes = (value_shape[-1], key_shape[-1])
        self.score.build_for_attention(query_shape, key_shape)

    def project_memory(self, value, key=None, start_index=0):
        return {"key": self.score.project_key(value if key is None else key), "value": value}

    def compare(self, query, key, visible):
        return self.score.compare(self.score.project_query(query), key)

    def compare_layers(self):
        return [self.score]

    def pair_size(self):
        return self.score.hidden_size

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return (*query_shape[:-1], value_shape[-1])

    def get_config(self):
        return {**super().get_config(), "score": serialize_shared(self.score)}

    @classmethod
    def from_config(cls, config):
        config = {**config, "score": keras.saving.deserialize_keras_object(config["score"])}
        return cls(**config)
