"""Grouped-query attention."""

import keras
from keras import ops

from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import IN_KERNEL, PAIRWISE, promises
from zoo.layers.core.lazy import computed_from, length_of
from zoo.layers.core.projections import reshape


class SharedMemoryAttention(MultiHeadAttention):
    """Base of multi-head attention whose heads share keys and values [B, G, S, H] in G groups.

    One product compares the queries of all heads of a group with its keys.

    Args:
        *args: Sizes of `MultiHeadAttention`.
        **kwargs: Other options of `MultiHeadAttention`.
    """

    @promises(IN_KERNEL, PAIRWISE)
    def compare_heads(self, query, key):
        if key.shape[1] == self.num_heads:
            return super().compare_heads(query, key)
        return self._unfold(super().compare_heads(_fold(query, key.shape[1]), key), length_of(query, 2))

    @promises(IN_KERNEL, PAIRWISE)
    def sum_heads(self, weights, value):
        if value.shape[1] == self.num_heads:
            return super().sum_heads(weights, value)
        return self._unfold(super().sum_heads(_fold(weights, value.shape[1]), value), length_of(weights, 2))

    def _unfold(self, folded, length):
        """Returns [B, N, T, D] from [B, G, N/G · T, D]."""
        return reshape(folded, (length_of(folded, 0), self.num_heads, length, length_of(folded, 3)))

    def repeat_memory(self, memory):
        return tuple(repeat_heads(memory[name], self.num_heads) for name in ("key", "value"))


@keras.saving.register_keras_serializable(package="attention_zoo")
class GroupedQueryAttention(SharedMemoryAttention):
    """Multi-head attention whose heads share keys and values in groups: `headᵢ` uses `K W_k^g` and `V W_v^g`.

    The group of head i is `g = ⌊i · G / N⌋`. With one group this is multi-query attention (Shazeer 2019), with N groups
    multi-head attention. Keys, values and caches are N / G times smaller; with `share_score=False` only the values
    are, since each head has a score that may project the keys of its group.

    Args:
        num_heads: N, a positive integer.
        num_key_value_heads: G, a divisor of `num_heads`.
        key_dim: Size of each head for keys, and by default for queries; a positive integer.
        value_dim: Size of each head for values. Default: `key_dim`.
        **kwargs: Other options of `MultiHeadAttention`.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: If `num_heads` is not a multiple of `num_key_value_heads`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import GroupedQueryAttention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> layer = GroupedQueryAttention(num_heads=4, num_key_value_heads=2, key_dim=5)
        >>> layer(inputs, inputs).shape
        TensorShape([2, 3, 8])

    Reference:
        Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
        section 2.2, https://arxiv.org/abs/2305.13245;
        Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", https://arxiv.org/abs/1911.02150
    """

    saved_options = ("num_key_value_heads",)

    def __init__(self, num_heads, num_key_value_heads, key_dim, value_dim=None, **kwargs):
        num_heads = check_size("num_heads", num_heads)
        num_key_value_heads = check_size("num_key_value_heads", num_key_value_heads)
        if num_heads % num_key_value_heads:
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: num_heads={num_heads}, num_key_value_heads={num_key_value_heads}."
            )
        self.num_key_value_heads = num_key_value_heads
        super().__init__(num_heads, key_dim, value_dim, **kwargs)

    @property
    def memory_heads(self):
        return self.num_key_value_heads

    def keys_to_compare(self, key):
        return key if self.share_score else repeat_heads(key, self.num_heads)


def repeat_heads(heads, num_heads):
    """Returns [B, N, S, H] from [B, G, S, H]."""
    batch, groups, length, size = ops.shape(heads)
    # Not `ops.repeat`, for which Keras on PyTorch cannot infer shapes without computing everything.
    repeated = ops.broadcast_to(heads[:, :, None], (batch, groups, num_heads // groups, length, size))
    return reshape(repeated, (batch, num_heads, length, size))


def _fold(heads, groups):
    """Returns [B, G, N/G · T, D] from [B, N, T, D]: the queries of all heads of a group, one head after another."""
    batch, num_heads, length, size = (length_of(heads, axis) for axis in range(4))
    rows = computed_from(lambda length: num_heads // groups * length, length)
    return reshape(heads, (batch, groups, rows, size))
