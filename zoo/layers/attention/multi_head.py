"""Multi-head attention with any score function."""

import math
import numbers

import keras
from keras import backend, ops

from zoo.layers.attention.base import NO_VALUE, BaseAttention, check_built
from zoo.layers.core.checks import check_size
from zoo.layers.core.constants import constant_of
from zoo.layers.core.dropout import drop_weights
from zoo.layers.core.facts import IN_KERNEL, PAIRWISE, PLAIN, UNPLACED, computes, keeps, overridden_since, promises
from zoo.layers.core.kernels import fused_attention, products
from zoo.layers.core.masks import rank_4
from zoo.layers.core.normalization import make_normalization
from zoo.layers.core.projections import effective_kernel, is_plain, join_heads, project_heads, projection, split_heads
from zoo.layers.core.softmax import masked_softmax
from zoo.layers.positions.base import Positions
from zoo.layers.scores import get_score
from zoo.layers.scores.by_name import PerHeadScore
from zoo.layers.scores.products import DotScore

_STEPS = ("attend_rows", "compare", "compare_heads", "cap_scores", "normalize", "weighted_sum", "sum_heads")


@keras.saving.register_keras_serializable(package="attention_zoo")
class MultiHeadAttention(BaseAttention):
    """Multi-head attention: `concat(head₁ … head_N) W_o`, `headᵢ = attention(Q W_qⁱ, K W_kⁱ, V W_vⁱ)`.

    Each projection is one matrix for all heads, and is initialised as one. Head i, from 1 to N, has the p columns of
    W_q, W_k and W_v, [D, N · p], that begin at (i − 1) · p, and the same rows of W_o; see `head_kernels`.
    Without `output_projection` the output is `concat(head₁ … head_N)`, [B, T, N · p_v].

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for keys, p_k, and by default for queries; a positive integer.
        value_dim: Size of each head for values, p_v. Default: `key_dim`.
        output_dim: Size of the output, p_o. Default: the last axis of the query.
        score: The score of each head, as for `get_score`: a `Score`, its name, or a callable or Keras layer
            f(query, key) → scores. Default: `ScaledDotScore()`.
        positions: A `Positions` object, such as `RotaryPositions()`; `None` for attention that ignores positions.
        use_bias: Whether the projections have biases.
        kernel_initializer: Initializer of the projections.
        query_dim: Size of each head for queries, p_q. Default: `key_dim`. It may differ if the score takes queries and
            keys of different sizes (general, additive, concat with or without v, location, or your own).
        output_projection: Whether W_o is applied.
        share_score: Whether all heads share one score function. If not, each head has a copy with separate weights:
            `headᵢ = attentionᵢ(…)`, see `PerHeadScore`.
        qk_norm: Whether the queries and keys of each head are normalised before positions rotate them,
            `q / √(mean(q²) + ε) ⊙ γ_q`, `k / √(mean(k²) + ε) ⊙ γ_k`, ε = 10⁻⁶, which bounds their products. γ_q [p_q]
            and γ_k [p_k] are learned and shared by all heads. `qk_norm` costs O((T + S) · N · p).
            `score="cosine"` is the variant of Henry et al. 2020, with vectors of length 1 and a learned temperature.
        qk_norm_across_heads: Whether `qk_norm` normalises all heads of a position as one vector, with means over its
            N · p numbers and γ_q [N · p_q] and γ_k [N · p_k] (OLMo 2).
        logit_softcap: c, a positive number that bounds the scores, `c · tanh(score / c)`, or `None`. The cap applies to
            the score with Shaw's relative keys, before biases of positions, `attention_bias` and masks. It costs
            O(N · T · S), and disables fused kernels, which have no cap.
        output_gate: Whether the heads are gated before W_o, `concat(headᵢ) ⊙ sigmoid(X W_g)`, where X is the
            query before its projection. A head can then contribute nothing at a position, without an attention sink.
            The gate adds D · N · p_v weights, and N · p_v biases with `use_bias`.
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: If a size is not a positive integer, `positions` is not a `Positions` object, `query_dim` differs
            from `key_dim` and the score or the positions require equal sizes (dot products, cosine; rotary positions
            and Shaw's), `output_dim` is set without `output_projection`, or `qk_norm_across_heads` without `qk_norm`,
            or `logit_softcap` is not a positive number.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import MultiHeadAttention
        >>> query, value = np.ones((2, 3, 8), "float32"), np.ones((2, 5, 7), "float32")
        >>> output, weights = MultiHeadAttention(num_heads=2, key_dim=4)(query, value, return_attention_scores=True)
        >>> output.shape, weights.shape
        (TensorShape([2, 3, 8]), TensorShape([2, 2, 3, 5]))

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2, https://arxiv.org/abs/1706.03762;
        normalised queries and keys: Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters",
        section 2, https://arxiv.org/abs/2302.05442; Henry et al. 2020, "Query-Key Normalization for Transformers",
        section 3, https://arxiv.org/abs/2010.04245; of all heads together: OLMo Team 2025, "2 OLMo 2 Furious", section
        3.1, https://arxiv.org/abs/2501.00656; capped scores: Gemma Team 2024, "Gemma 2: Improving Open Language
        Models at a Practical Size", section 2, https://arxiv.org/abs/2408.00118; Bello et al. 2016, "Neural
        Combinatorial Optimization with Reinforcement Learning", appendix A.2, https://arxiv.org/abs/1611.09940; gated
        output: Qiu et al. 2025, "Gated Attention for Large Language Models: Non-linearity, Sparsity, and
        Attention-Sink-Free", section 2.2 (G1), https://arxiv.org/abs/2505.06708
    """

    saved_options: tuple[str, ...] = (
        "num_heads",
        "key_dim",
        "value_dim",
        "output_dim",
        "score",
        "positions",
        "use_bias",
        "kernel_initializer",
        "query_dim",
        "output_projection",
        "share_score",
        "qk_norm",
        "logit_softcap",
        "output_gate",
        "qk_norm_across_heads",
    )
    has_heads = True

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        output_dim=None,
        score=None,
        positions=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        query_dim=None,
        output_projection=True,
        share_score=True,
        qk_norm=False,
        logit_softcap=None,
        output_gate=False,
        qk_norm_across_heads=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = check_size("num_heads", num_heads)
        self.key_dim = check_size("key_dim", key_dim)
        self.query_dim = check_size("query_dim", query_dim, optional=True) or self.key_dim
        self.value_dim = check_size("value_dim", value_dim, optional=True) or self.key_dim
        self.output_dim = check_size("output_dim", output_dim, optional=True)
        if output_dim is not None and not output_projection:
            raise ValueError(
                "`output_dim` requires `output_projection=True`: without it, the output size is num_heads · value_dim. "
                f"Received: output_dim={output_dim}."
            )
        self.output_projection = output_projection
        self.score = self._make_score("scaled_dot" if score is None else score, share_score)
        self.share_score = not isinstance(self.score, PerHeadScore)
        self.positions = _check_positions(positions)
        self._check_equal_sizes()
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query_dense = self._dense(self.num_heads * self.query_dim, "query")
        self.key_dense = self._dense(self.memory_heads * self.key_dim, "key")
        self.value_dense = self._dense(self.memory_heads * self.value_dim, "value")
        if qk_norm_across_heads and not qk_norm:
            raise ValueError("`qk_norm_across_heads` requires `qk_norm=True`. Received: qk_norm=False.")
        self.qk_norm = qk_norm
        self.qk_norm_across_heads = qk_norm_across_heads
        self.query_norm, self.key_norm = (
            (self._make_norm("query_norm"), self._make_norm("key_norm")) if qk_norm else (None, None)
        )
        self.logit_softcap = _check_softcap(logit_softcap)
        self.output_gate = output_gate
        self.gate_dense = self._make_gate("sigmoid") if output_gate else None

    def _make_gate(self, activation):
        size, initializer = self.num_heads * self.value_dim, self.kernel_initializer
        return projection(self, size, "gate", self.use_bias, initializer, activation)

    def _make_norm(self, name):
        return make_normalization("rms_norm", epsilon=1e-6, dtype=self.dtype_policy, name=name)

    def _make_score(self, score, share):
        if share or isinstance(score, PerHeadScore):
            return get_score(score, dtype=self.dtype_policy)
        return PerHeadScore(score, self.num_heads, dtype=self.dtype_policy, name="score")

    def _check_equal_sizes(self):
        for component in (self.score, self.positions):
            if component is not None and component.needs_equal_sizes and self.query_dim != self.key_dim:
                component = component.score if isinstance(component, PerHeadScore) else component
                raise ValueError(
                    f"`query_dim` must equal `key_dim` with {type(component).__name__}. "
                    f"Received: query_dim={self.query_dim}, key_dim={self.key_dim}."
                )

    @property
    def memory_heads(self):
        """Number of heads of keys and values."""
        return self.num_heads

    @property
    def needs_query_position(self):
        return self.positions is not None

    def _dense(self, units, name):
        return projection(self, units, name, self.use_bias, self.kernel_initializer)

    def build(self, query_shape, value_shape=None, key_shape=None):
        if value_shape is None:
            raise ValueError(NO_VALUE)
        super().build(query_shape, value_shape, key_shape)
        key_shape = key_shape or value_shape
        self.memory_sizes = (value_shape[-1], key_shape[-1])
        if self.positions is not None:
            self.positions.build_for_attention(
                self.num_heads, self.key_dim, self.value_dim, query_shape[-1], key_shape[-1]
            )
        self.build_projections(query_shape, value_shape, key_shape)
        if self.qk_norm:
            across = self.qk_norm_across_heads
            self.query_norm.build((None, None, None, self.query_dense.units if across else self.query_dim))
            self.key_norm.build((None, None, None, self.key_dense.units if across else self.key_dim))
        if self.gate_dense is not None:
            self.gate_dense.build(query_shape)
        batch, length = query_shape[0], query_shape[1]
        self.score.build_for_attention(
            (batch, self.num_heads, length, self.query_dim), (batch, self.num_heads, key_shape[1], self.key_dim)
        )
        self.output_dense = None
        if self.output_projection:
            self.output_dense = self._dense(self.output_dim or query_shape[-1], "output")
            self.output_dense.build((batch, length, self.num_heads * self.value_dim))

    def build_projections(self, query_shape, value_shape, key_shape):
        """Builds the query, key and value projections for inputs of these shapes."""
        self.query_dense.build(self._encoded_shape(query_shape))
        self.key_dense.build(self._encoded_shape(key_shape))
        self.value_dense.build(value_shape)

    def _encoded_shape(self, shape):
        return shape if self.positions is None else (*shape[:-1], self.positions.encoded_size(shape[-1]))

    @property
    def uses_positions(self):
        return self.positions is not None or super().uses_positions

    def is_plain(self):
        parts = self.positions, self.query_norm, self.key_norm, self.logit_softcap, self.gate_dense
        is_product = keeps(self.score, PLAIN, ("project_query", "project_key", "compare"))
        steps = ("keys_to_compare", "compare_heads", "cap_scores", "sum_heads")
        has_no_parts = all(part is None for part in parts)
        return super().is_plain() and has_no_parts and is_product and keeps(self, PLAIN, steps)

    def compute_attention(self, query, value, key, mask, seed):
        """Returns `concat(head₁ … head_N) W_o`, `headᵢ = softmax(Qᵢ Kᵢᵀ / √p_k) Vᵢ`, and the weights of the heads.

        See `AttentionDescription` for the arguments; keys that the mask excludes have weight 0.
        """
        query = project_heads(self.query_dense, query, self.query_dim)  # [B, N, T, p_k]
        key = project_heads(self.key_dense, key, self.key_dim)  # [B, N, S, p_k]
        value = project_heads(self.value_dense, value, self.value_dim)  # [B, N, S, p_v]
        scores = products(query * self.key_dim**-0.5, key)  # [B, N, T, S], scaled first, so that they do not overflow
        weights = ops.cast(masked_softmax(scores, mask), self.compute_dtype)
        dropped = weights if seed is None else drop_weights(weights, self.dropout, seed)
        heads = ops.matmul(dropped, value)  # [B, N, T, p_v]
        return join_heads(self.output_dense, heads, self.num_heads * self.value_dim), weights  # [B, T, p_o]

    @computes("query W_q + b_q")
    @promises(UNPLACED, PLAIN)
    def project_query(self, query, start_index=0):
        heads = project_heads(self.query_dense, self._encoded(query, start_index), self.query_dim)
        return self._prepare_query(heads, start_index)

    @computes("key W_k + b_k", "value W_v + b_v")
    @promises(UNPLACED, PLAIN)
    def project_memory(self, value, key=None, start_index=0):
        check_built(self)
        key = self._encoded(value if key is None else key, start_index)
        key = project_heads(self.key_dense, key, self.key_dim)
        value = project_heads(self.value_dense, value, self.value_dim)
        return {"key": self._prepare_key(key, start_index), "value": value}

    def _encoded(self, inputs, start_index):
        return inputs if self.positions is None else self.positions.encode(inputs, start_index)

    def _normalize_heads(self, norm, heads):
        """Returns heads [B, N, T, p] normalised by `norm`; if `norm` is `None`, unchanged."""
        if norm is None or not self.qk_norm_across_heads:
            return heads if norm is None else norm(heads)
        return split_heads(norm(join_heads(None, heads, norm.scale.shape[0])), heads.shape[-1])

    def _prepare_query(self, heads, start_index):
        """Returns projected queries after normalisation and rotation."""
        heads = self._normalize_heads(self.query_norm, heads)
        return heads if self.positions is None else self.positions.rotate_query(heads, start_index)

    def _prepare_key(self, key, start_index):
        """Returns projected keys after normalisation, rotation and the score's own projection."""
        key = self._normalize_heads(self.key_norm, key)
        key = key if self.positions is None else self.positions.rotate_key(key, start_index)
        return self.score.project_key(self.keys_to_compare(key))

    def constant(self):
        """Returns the joined kernel [D, (N + 2 G) · p] and bias of the three projections, for `project_jointly`.

        G is `memory_heads`. Returns `None` if they cannot be joined: a subclass overrides a projection or `step`,
        positions change the inputs, sizes or dtypes differ, or a projection has an activation or is not `is_plain`.
        """
        projections = [self.query_dense, self.key_dense, self.value_dense]
        if overridden_since(self, ("project_query", "project_memory", "step"), "project_jointly"):
            return None
        if self.positions is not None and type(self.positions).encode is not Positions.encode:
            return None
        if not all(is_plain(dense) and dense.compute_dtype == self.compute_dtype for dense in projections):
            return None
        if any(dense.activation not in (None, keras.activations.linear) for dense in projections):
            return None
        shapes = {(dense.kernel.shape[0], dense.bias is None) for dense in projections}
        if len({self.query_dim, self.key_dim, self.value_dim}) > 1 or len(shapes) > 1:
            return None

        def joined(weights, axis):
            return ops.concatenate([ops.cast(weight, self.compute_dtype) for weight in weights], axis)

        biases = None if self.query_dense.bias is None else joined([dense.bias for dense in projections], 0)
        return joined([dense.kernel for dense in projections], 1), biases

    def project_jointly(self, inputs, start_index):
        joined = constant_of(self)
        if joined is None:
            return None
        kernel, bias = joined

        def project(rows):
            products = ops.matmul(rows, kernel)
            return products if bias is None else ops.add(products, bias)

        heads = project_heads(project, inputs, self.key_dim)  # [B, N + 2 G, T, p]
        first, second = self.num_heads, self.num_heads + self.memory_heads
        if 3 * first == heads.shape[1]:
            query, key, value = ops.split(heads, 3, axis=1)
        else:
            query, key, value = heads[:, :first], heads[:, first:second], heads[:, second:]
        return self._prepare_query(query, start_index), {"key": self._prepare_key(key, start_index), "value": value}

    @promises(PLAIN)
    def keys_to_compare(self, key):
        """Returns the projected keys [B, N or G, S, H] for the score."""
        return key

    def _positions_act_on_scores(self):
        return self.positions is not None and self.positions.acts_on_scores

    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def compare(self, query, key, visibility):
        scores = self.compare_heads(self.score.project_query(query), key)
        if not self._positions_act_on_scores():
            return self.cap_scores(scores)
        pairs = visibility.query_positions, visibility.key_positions
        scores = self.cap_scores(_add_term(scores, self.positions.scores(query, *pairs)))
        return _add_term(scores, self.positions.bias(*pairs))

    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def compare_heads(self, query, key):
        """Returns the scores [B, N, T, S] of queries and keys that the score has projected, without positions."""
        return self.score.compare(query, key)

    @computes("c · tanh(scores / c)")
    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def cap_scores(self, scores):
        """Returns scores [B, N, T, S], capped in float32 or wider if the layer has a soft-cap."""
        if self.logit_softcap is None:
            return scores
        scores = ops.cast(scores, backend.result_type(scores.dtype, "float32"))
        return self.logit_softcap * ops.tanh(scores / self.logit_softcap)

    @computes("weights · value")
    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def weighted_sum(self, weights, value, visibility):
        output = self.sum_heads(weights, value)
        if self._positions_act_on_scores():
            term = self.positions.values(weights, visibility.query_positions, visibility.key_positions)
            output = output if term is None else output + ops.cast(term, output.dtype)
        return output

    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def sum_heads(self, weights, value):
        """Returns the weighted sum [B, N, T, H] of values [B, N, S, H], without positions."""
        return ops.matmul(weights, value)

    def compare_layers(self):
        return [self.score] + ([] if self.positions is None else [self.positions])

    def is_pairwise(self):
        return super().is_pairwise() and keeps(self, PAIRWISE, ("compare_heads", "cap_scores", "sum_heads"))

    @property
    def needs_all_keys(self):
        return self.score.needs_all_keys

    def pair_size(self):
        return self.score.hidden_size

    def max_keys(self):
        return self.score.max_keys

    def can_fuse(self, masked, biased):
        is_product = type(self.score).compare is DotScore.compare and keeps(self, IN_KERNEL, _STEPS)
        # On PyTorch Keras' operation takes a mask or a bias, not both; the largest biases do not fit float16.
        fits = not biased or not (masked or self.compute_dtype == "float16")
        is_plain = self.has_softmax and self.logit_softcap is None and not self._positions_act_on_scores()
        return is_product and is_plain and fits

    def fused_output(self, query, memory, visibility, bias):
        # `project_query` scales the query, before the product, so that float16 scores stay in range.
        bias = None if bias is None else rank_4(ops.cast(bias, self.compute_dtype))
        query, (key, value) = self.score.project_query(query), self.repeat_memory(memory)
        if visibility.is_plainly_causal:  # the kernel skips half of the work
            return fused_attention(query, key, value, None, bias, is_causal=True)
        return fused_attention(query, key, value, visibility.mask(), bias)

    def repeat_memory(self, memory):
        """Returns the keys and values of a memory with N heads each."""
        return memory["key"], memory["value"]

    @promises(PLAIN)
    def finish(self, output, inputs):
        if self.gate_dense is not None:
            gate = project_heads(self.gate_dense, inputs, self.value_dim)
            output = output * ops.cast(gate, output.dtype)
        return self.project_output(output)

    @computes("concatenation W_o + b_o")
    @promises(PLAIN)
    def project_output(self, output):
        return join_heads(self.output_dense, output, self.num_heads * self.value_dim)

    def head_kernels(self):
        """Returns the matrices of each head, a dict of NumPy arrays in float32.

        `query` [N, D, p_q], `key` [N, D, p_k] and `value` [N, D, p_v] are W_q⁽ⁱ⁾, W_k⁽ⁱ⁾ and W_v⁽ⁱ⁾, where D is the
        last axis of the queries, keys and values, including concatenated positions; `output` [N, p_v, p_o] is W_o⁽ⁱ⁾,
        if there is an output projection: `Σᵢ headᵢ W_o⁽ⁱ⁾ = concat(headᵢ) W_o`. With grouped queries, keys and values
        have a matrix for each group, [G, D, p].

        Raises:
            ValueError: If the layer has not been built.
        """
        check_built(self)
        kernels = {
            "query": columns_of_heads(self.query_dense, self.query_dim),
            "key": columns_of_heads(self.key_dense, self.key_dense.units // self.memory_heads),
            "value": columns_of_heads(self.value_dense, self.value_dim),
        }
        if self.output_dense is not None:
            kernel = effective_kernel(self.output_dense)
            kernels["output"] = kernel.reshape(self.num_heads, self.value_dim, kernel.shape[-1])
        return kernels

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        if not self.output_projection:
            return (*query_shape[:-1], self.num_heads * self.value_dim)
        return (*query_shape[:-1], self.output_dim or query_shape[-1])


def columns_of_heads(dense, size):
    """Returns the matrix of each head, [N, D, size], from the kernel [D, N · size] of a projection."""
    kernel = effective_kernel(dense)
    return kernel.reshape(len(kernel), -1, size).swapaxes(0, 1)


def _check_positions(positions):
    if positions is None or isinstance(positions, Positions):
        return positions
    raise ValueError(
        "`positions` must be a Positions object, such as RotaryPositions(), or None. "
        f"Received: positions={positions!r}."
    )


def _check_softcap(cap):
    """Returns a soft-cap as a float, which can be serialized, or `None`."""
    if cap is None:
        return None
    if isinstance(cap, bool) or not isinstance(cap, numbers.Real) or not 0 < cap < math.inf:
        raise ValueError(f"`logit_softcap` must be a positive number, or None. Received: logit_softcap={cap!r}.")
    return float(cap)


def _add_term(scores, term):
    return scores if term is None else scores + ops.cast(term, scores.dtype)
