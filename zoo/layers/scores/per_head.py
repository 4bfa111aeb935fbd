"""A score with weights of its own for each head."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.scores.base import Score
from zoo.layers.scores.by_name import get_score


@keras.saving.register_keras_serializable(package="attention_zoo")
class PerHeadScore(Score):
    """A score function for each head: `scoreᵢ(qᵢ, kᵢ)`, all of one kind, each with weights of its own.

    `MultiHeadAttention(..., share_score=False)` makes one of its score. The heads are compared one after another, which
    takes longer than one comparison of all of them with shared weights.

    Args:
        score: What `get_score` takes. Every head gets a copy of it with fresh weights.
        num_heads: N, a positive integer.

    Call arguments:
        query: [B, N, T, Dq].
        key: [B, N, S, Dk].

    Returns:
        Scores [B, N, T, S].

    Raises:
        ValueError: If queries or keys have another number of heads.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import PerHeadScore
        >>> score = PerHeadScore("additive", num_heads=2)
        >>> score(np.ones((1, 2, 3, 5), "float32"), np.ones((1, 2, 4, 5), "float32")).shape, score.count_params()
        (TensorShape([1, 2, 3, 4]), 120)

    Reference:
        Zhang et al. 2021, "Dive into Deep Learning", section 11.5, where the attention f of each head is additive or
        scaled dot product, https://d2l.ai/chapter_attention-mechanisms-and-transformers/multihead-attention.html
    """

    saved_options = ("score", "num_heads")

    def __init__(self, score, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = check_size("num_heads", num_heads)
        score = get_score(score, dtype=self.dtype_policy)
        self.head_scores = [score.copy(f"head_{head}") for head in range(self.num_heads)]

    @property
    def score(self):
        """The score of the first head."""
        return self.head_scores[0]

    @property
    def hidden_size(self):
        """That of the score of a head."""
        return self.score.hidden_size

    @property
    def needs_equal_sizes(self):
        """That of the score of a head."""
        return self.score.needs_equal_sizes

    @property
    def needs_all_keys(self):
        """That of the score of a head."""
        return self.score.needs_all_keys

    @property
    def max_keys(self):
        """That of the score of a head."""
        return self.score.max_keys

    def build(self, query_shape, key_shape):
        self._check_heads(query=query_shape, key=key_shape)
        for score in self.head_scores:
            score.build((query_shape[0], *query_shape[2:]), (key_shape[0], *key_shape[2:]))

    def _check_heads(self, **shapes):
        for name, shape in shapes.items():
            if len(shape) != 4 or shape[1] not in (None, self.num_heads):
                raise ValueError(
                    f"`{name}` must be [B, {self.num_heads}, length, size] for this score, which has weights for each "
                    f"of {self.num_heads} heads. Received: shape={tuple(shape)}."
                )

    def _sizes(self, query_shape, key_shape):
        return {"num_heads": query_shape[1], **self.score._sizes(query_shape, key_shape)}

    def get_config(self):
        config = super().get_config()
        config["score"].pop("build_config", None)  # a pattern: its copies are built
        return config

    def _each(self, method, *tensors):
        """Returns what a method of the scores makes of the heads of tensors [B, N, ...], on the same axis."""
        heads = [
            getattr(score, method)(*(tensor[:, head] for tensor in tensors))
            for head, score in enumerate(self.head_scores)
        ]
        return ops.stack(heads, axis=1)

    def project_query(self, query):
        self._check_heads(query=query.shape)  # it may have been built for a number that was not known
        return self._each("project_query", query)

    def project_key(self, key):
        self._check_heads(key=key.shape)
        return self._each("project_key", key)

    def compare(self, query, key):
        return self._each("compare", query, key)
