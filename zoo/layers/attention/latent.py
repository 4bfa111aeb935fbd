"""Multi-head latent attention: keys and values of all heads from one small vector per position."""

import keras
from keras import ops

from zoo.layers.attention.base import check_built
from zoo.layers.attention.grouped_query import SharedMemoryAttention
from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import IN_KERNEL, keeps
from zoo.layers.core.projections import (
    apply_positionwise,
    project_heads,
    projection,
    replace_layer,
    split_at,
    split_heads,
)
from zoo.layers.positions.rotary import RotaryPositions

# A subclass that overrides one of these methods requires keys and values in place of latent vectors.
_METHODS_ON_KEYS = ("attend_rows", "compare", "compare_heads", "weighted_sum", "sum_heads")


@keras.saving.register_keras_serializable(package="attention_zoo")
class MultiHeadLatentAttention(SharedMemoryAttention):
    """Multi-head attention whose cache contains one latent vector and one rotary key per position, for all heads.

    `c = norm(W_DKV v)`, `kᵢ = [W_UKⁱ c; R(s) W_KR k]`, `vᵢ = W_UVⁱ c` for a key k and value v at position s, which are
    one vector in the paper; `qᵢ = [W_UQⁱ c'; R(p) W_QRⁱ c']` with `c' = norm(W_DQ q)` for a query q at position p, or
    `c' = q` without `query_latent_dim`. `headᵢ = Σ softmax(qᵢ · kᵢ / √p_k) vᵢ`, `output = concat(headᵢ) W_o`.

    The cache has C + R numbers per position for any N; that of multi-head attention has N · (p_k + p_v). A step of
    decoding does not compute keys and values: since `q · W_UK c = (W_UKᵀ q) · c` and `Σ w W_UV c = W_UV Σ w c`, all
    heads can attend to the latent vectors themselves. The layer does so if it takes fewer multiplications,
    (2 C + R) T · S · N instead of (C (p_k − R + p_v) + (p_k + p_v) T) · S · N: for few queries.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for queries and keys, p_k, of which the last `rope_dim` features are rotary.
        latent_dim: Size of c, C, a positive integer.
        rope_dim: Size of the rotary part, R, an even number below `key_dim`.
        value_dim: Size of each head for values, p_v. Default: `key_dim − rope_dim`.
        query_latent_dim: Size of c', or `None` for c' = q.
        latent_norm: Whether c and c' are normalised (RMS norm).
        use_bias: Whether the projections to c, c', the rotary key and the output have biases, and without c' the
            projection to the queries. Projections from c and c' have none.
        **kwargs: Other options of `MultiHeadAttention`, except `score`, `share_score`, `query_dim`, `qk_norm` and
            `qk_norm_across_heads`: the scores are scaled dot products. `positions` are `RotaryPositions()` by default.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S]. If `key` is not `value`,
    only the rotary part depends on it. `head_kernels` has W_UKⁱ [N, C, p_k − R] and W_UVⁱ [N, C, p_v].

    Raises:
        ValueError: For an unsupported option, `positions` that are not rotary, or a `rope_dim` that is odd or
            not below `key_dim`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import MultiHeadLatentAttention
        >>> layer = MultiHeadLatentAttention(num_heads=4, key_dim=12, latent_dim=5, rope_dim=4)
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> layer(inputs, inputs, use_causal_mask=True).shape
        TensorShape([2, 3, 8])
        >>> {name: tuple(tensor.shape) for name, tensor in layer.create_cache(batch_size=2, length=100).items()}
        {'key': (2, 1, 100, 4), 'value': (2, 1, 100, 5), 'index': ()}

    Reference:
        DeepSeek-AI 2024, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", section
        2.1, equations 9-19, and appendix C; the norms: section 3.1.2, https://arxiv.org/abs/2405.04434
    """

    saved_options = ("latent_dim", "rope_dim", "query_latent_dim", "latent_norm")

    def __init__(
        self,
        num_heads,
        key_dim,
        latent_dim,
        rope_dim,
        value_dim=None,
        query_latent_dim=None,
        latent_norm=True,
        use_bias=False,
        **kwargs,
    ):
        self._check_options(kwargs)
        self.latent_dim = check_size("latent_dim", latent_dim)
        self.rope_dim = check_size("rope_dim", rope_dim)
        key_dim = check_size("key_dim", key_dim)
        if self.rope_dim % 2 or self.rope_dim >= key_dim:
            raise ValueError(
                f"`rope_dim` must be even and below `key_dim`. Received: rope_dim={rope_dim}, key_dim={key_dim}."
            )
        kwargs.setdefault("positions", RotaryPositions())
        # `project_query` scales the queries: when they are compared with latent vectors, their size is not `key_dim`.
        super().__init__(num_heads, key_dim, value_dim or key_dim - rope_dim, score="dot", use_bias=use_bias, **kwargs)
        self.query_latent_dim = check_size("query_latent_dim", query_latent_dim, optional=True)
        self.latent_norm = latent_norm
        self.content_dim = self.key_dim - self.rope_dim
        self.latent_dense, self.rope_dense = self._dense(self.latent_dim, "latent"), self._dense(self.rope_dim, "rope")
        replace_layer(self, "key_dense", self._from_latent(self.num_heads * self.content_dim, "key"))
        replace_layer(self, "value_dense", self._from_latent(self.num_heads * self.value_dim, "value"))
        self.query_latent_dense = None
        if query_latent_dim is not None:
            self.query_latent_dense = self._dense(self.query_latent_dim, "query_latent")
            replace_layer(self, "query_dense", self._from_latent(self.num_heads * self.key_dim, "query"))
        self.memory_norm = self._make_norm("latent_norm") if latent_norm else None
        self.query_latent_norm = self._make_norm("query_latent_norm") if latent_norm and query_latent_dim else None

    def _check_options(self, options):
        name = type(self).__name__
        defaults = {"score": None, "share_score": True, "query_dim": None}
        defaults |= {"qk_norm": False, "qk_norm_across_heads": False}
        for option, default in defaults.items():
            if options.pop(option, default) != default:
                raise ValueError(f"{name} takes no `{option}`: all heads compare latent vectors by dot products.")
        positions = options.get("positions", RotaryPositions())
        if not isinstance(positions, RotaryPositions) or positions.acts_on_scores:
            raise ValueError(f"`positions` of {name} must be RotaryPositions. Received: positions={positions!r}.")

    def _from_latent(self, units, name):
        return projection(self, units, name, False, self.kernel_initializer)

    def build_projections(self, query_shape, value_shape, key_shape):
        self.latent_dense.build(value_shape)
        self.rope_dense.build(key_shape)
        latent_shape = (*value_shape[:-1], self.latent_dim)
        self.key_dense.build(latent_shape)
        self.value_dense.build(latent_shape)
        if self.query_latent_dense is not None:
            self.query_latent_dense.build(query_shape)
            query_shape = (*query_shape[:-1], self.query_latent_dim)
        self.query_dense.build(query_shape)
        for norm, shape in ((self.memory_norm, latent_shape), (self.query_latent_norm, query_shape)):
            if norm is not None:
                norm.build(shape)

    def project_query(self, query, start_index=0):
        if self.query_latent_dense is not None:
            query = _normalize(self.query_latent_norm, apply_positionwise(self.query_latent_dense, query))
        heads = project_heads(self.query_dense, query, self.key_dim)
        content, rotary = split_at(heads, self.content_dim)
        heads = ops.concatenate([content, self.positions.rotate_query(rotary, start_index)], axis=-1)
        return heads * self.key_dim**-0.5  # before the products, so that float16 scores stay in range

    def project_memory(self, value, key=None, start_index=0):
        """Returns `{"key": ..., "value": ...}`, the rotary keys [B, 1, S, R] and the latent vectors [B, 1, S, C].

        Args:
            value: [B, S, Dv].
            key: [B, S, Dk]; defaults to `value`.
            start_index: Position of the first key, if the keys are appended to a cache.
        """
        check_built(self)
        rotary = project_heads(self.rope_dense, value if key is None else key, self.rope_dim)
        latent = _normalize(self.memory_norm, apply_positionwise(self.latent_dense, value))
        return {"key": self.positions.rotate_key(rotary, start_index), "value": split_heads(latent, self.latent_dim)}

    def attend(self, query, memory, visibility, *arguments):
        if not self._compares_latent(query, memory):
            return super().attend(query, self._expand(memory), visibility, *arguments)
        key = ops.concatenate([memory["value"], memory["key"]], axis=-1)
        latent_memory = {"key": key, "value": memory["value"]}
        results = super().attend(self._latent_query(query), latent_memory, visibility, *arguments)
        output = ops.einsum("bntc,cnv->bntv", results["output"], self._kernel_per_head(self.value_dense))
        return {**results, "output": output}

    def _compares_latent(self, query, memory):
        """Returns whether queries are compared with latent vectors, since this takes fewer multiplications."""
        queries, keys = query.shape[-2], memory["value"].shape[-2]
        if not isinstance(queries, int) or self.key_dense.quantization_mode or self.value_dense.quantization_mode:
            return False
        if not keeps(self, IN_KERNEL, _METHODS_ON_KEYS):
            return False
        sizes = self.content_dim + self.value_dim
        # Multiplications per key and head. An unknown number of keys is assumed to be large.
        projections = queries * self.latent_dim * sizes / max(1, keys) if isinstance(keys, int) else 0
        latent_cost = queries * (2 * self.latent_dim + self.rope_dim) + projections
        return latent_cost < queries * (sizes + self.rope_dim) + self.latent_dim * sizes

    def _kernel_per_head(self, dense):
        """Returns the matrix of each head that projects latent vectors, [C, N, size]."""
        return ops.reshape(ops.cast(dense.kernel, self.compute_dtype), (self.latent_dim, self.num_heads, -1))

    def _latent_query(self, query):
        """Returns queries for latent vectors, [B, N, T, C + R] from [B, N, T, p_k]."""
        content, rotary = split_at(query, self.content_dim)
        content = ops.einsum("bnth,cnh->bntc", content, self._kernel_per_head(self.key_dense))
        return ops.concatenate([content, rotary], axis=-1)

    def _expand(self, memory):
        """Returns the keys [B, N, S, p_k] and values [B, N, S, p_v] that latent vectors represent."""
        latent = memory["value"][:, 0]
        content = project_heads(self.key_dense, latent, self.content_dim)
        batch, heads, length, _ = ops.shape(content)
        rotary = ops.broadcast_to(memory["key"], (batch, heads, length, self.rope_dim))
        value = project_heads(self.value_dense, latent, self.value_dim)
        return {"key": ops.concatenate([content, rotary], axis=-1), "value": value}

    def get_config(self):
        config = super().get_config()
        for option in ("score", "share_score", "query_dim", "qk_norm", "qk_norm_across_heads"):
            del config[option]
        return config


def _normalize(norm, latent):
    return latent if norm is None else norm(latent)
