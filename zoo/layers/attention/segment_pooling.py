"""Pooling by attention within each segment of a sequence, such as the sentences of a document."""

import keras
from keras import ops

from zoo.layers.core.base import KeepsQuantization, ReturnsMore
from zoo.layers.core.checks import check_layer, check_size
from zoo.layers.core.masks import check_mask, zero_masked
from zoo.layers.core.softmax import masked_softmax
from zoo.layers.scores import get_score


@keras.saving.register_keras_serializable(package="attention_zoo")
class SegmentPooling(ReturnsMore, KeepsQuantization):
    """The weighted mean of each segment of a sequence, by one learned query; a segment may be a sentence.

    With the inputs h_t, the query u, and the positions t of segment i:

        e_t = score(u, h_t)                                    [B, S]
        α_it = exp(e_t) / Σ_{t' in i} exp(e_t')  for t in i    [B, L, S], 0 for other t
        s_i = Σ_t α_it h_t                                     [B, L, D]

    With the additive score this is the word level of hierarchical attention networks.

    Args:
        num_segments: Number of segments, L; positions with higher segment numbers are ignored.
        score: See `Attention`. Default: `"additive"`, with a hidden layer of size D.

    Call arguments:
        inputs: [B, S, D].
        segments: Segment number of each position, beginning with 0, [B, S].
        mask: Boolean [B, S], True at real positions. Default: the Keras mask of `inputs`, which Keras passes as
            `inputs_mask`.
        return_attention_scores: Whether to return the weights as well.

    Returns:
        [B, L, D], with `return_attention_scores` also the weights [B, L, S]. For a segment without real positions both
        are zero.

    Raises:
        ValueError: If `num_segments` is not a positive integer, the score depends on all keys at once, such as
            `"location"`, or a mask is floating point.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SegmentPooling
        >>> pooling, segments = SegmentPooling(num_segments=2), np.array([[0, 0, 1]])
        >>> sentences, weights = pooling(np.ones((1, 3, 5), "float32"), segments, return_attention_scores=True)
        >>> sentences.shape
        TensorShape([1, 2, 5])
        >>> print(np.round(weights[0], 2))
        [[0.5 0.5 0. ]
         [0.  0.  1. ]]

    Reference:
        Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2, equations 5 to 7,
        https://aclanthology.org/N16-1174
    """

    saved_options = ("num_segments", "score")

    def __init__(self, num_segments, score="additive", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_segments = check_size("num_segments", num_segments)
        self.score = check_layer("score", get_score(score, dtype=self.dtype_policy))
        if self.score.needs_all_keys:
            raise ValueError(f"`score` must compare single vectors. Received: score={type(self.score).__name__}.")

    def build(self, inputs_shape, segments_shape=None):
        size = inputs_shape[-1]
        self.query = self.add_weight(name="query", shape=(1, size), initializer=keras.initializers.GlorotUniform())
        self.score.build_for_attention((None, 1, size), (None, None, size))

    def compute_mask(self, inputs, segments=None, mask=None):
        """Returns no mask: the vectors of segments that a text does not have are zero."""
        return None

    def call(self, inputs, segments, mask=None, return_attention_scores=False, *, inputs_mask=None):
        mask = check_mask(inputs_mask if mask is None else mask, "mask", (2,))
        inputs = zero_masked(inputs, mask)
        first = ops.pad(inputs[:, :1], ((0, 0), (0, 1), (0, 0)))[:, :1]  # [B, 1, D], even if there are no inputs
        query = ops.add(ops.zeros_like(first), ops.cast(self.query, self.compute_dtype))  # [B, 1, D]
        scores = self.score(query, inputs)  # [B, 1, S]
        numbers = ops.arange(self.num_segments, dtype="int32")
        members = ops.equal(ops.cast(segments, "int32")[:, None], numbers[:, None])  # [B, L, S]
        if mask is not None:
            members = ops.logical_and(members, mask[:, None])
        weights = masked_softmax(ops.broadcast_to(scores, ops.shape(members)), members)
        weights = ops.cast(weights, self.compute_dtype)
        output = ops.matmul(weights, inputs)
        return (output, weights) if return_attention_scores else output

    def compute_output_shape(self, inputs_shape, segments_shape=None):
        return (inputs_shape[0], self.num_segments, inputs_shape[-1])
