"""Embeddings that also give the logits."""

import keras


def reversible_embedding(size: int, dim: int, *, dtype, **options) -> keras.layers.ReversibleEmbedding:
    """Returns a table of vectors that multiplies in the policy's precision and hands masks on.

    Keras' own choice for logits is the precision of the table: under `mixed_bfloat16` the largest product of a model
    would be one of float32. Nor does it pass a mask on, though logits are of the same positions as what they are made
    of.

    Args:
        size: Number of symbols.
        dim: Size of a vector.
        dtype: Dtype policy.
        **options: Those of `keras.layers.ReversibleEmbedding`.

    Reference:
        Press and Wolf 2017, "Using the Output Embedding to Improve Language Models", section 3 (tying),
        https://arxiv.org/abs/1608.05859
    """
    precision = keras.dtype_policies.get(dtype).compute_dtype
    layer = keras.layers.ReversibleEmbedding(size, dim, reverse_dtype=precision, dtype=dtype, **options)
    layer.supports_masking = True
    return layer
