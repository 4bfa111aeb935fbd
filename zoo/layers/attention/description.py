"""The steps of attention, functions of tensors and positions, each of which a subclass can override."""

from keras import backend, ops

from zoo.layers.core.base import KeepsQuantization
from zoo.layers.core.dropout import drop_weights
from zoo.layers.core.facts import IN_KERNEL, PAIRWISE, PLAIN, UNPLACED, computes, keeps, promises
from zoo.layers.normalizations import SoftmaxNormalization

# The steps that `compute_attention` replaces.
_STEPS = (
    "project_query",
    "project_memory",
    "attend",
    "attend_rows",
    "compare",
    "normalize",
    "weighted_sum",
    "finish",
    "project_output",
)


class AttentionDescription(KeepsQuantization):
    """The steps of attention: project → compare → normalise → dropout → weighted sum → project.

    `weights = normalize(compare(query, key) + bias)`, `output = weighted_sum(weights, value)`, where masked positions
    have weight 0. A `Visibility` contains the masks and positions of a call. Axes: B batch, T queries, S keys and
    values, N heads, H size of a head, D features.
    """

    has_heads = False
    is_recurrent = False
    """Whether the weights of a query depend on those of the previous query, which a recurrent cell then stores as a
    state. Such a layer has `initial_weights` and `with_noise_seed`, see `MonotonicAttention`."""
    needs_query_position = False
    """Whether a call with a single query requires its position, `start_index`."""
    needs_all_keys = False
    """Whether a score depends on all keys at once."""

    @property
    def num_score_heads(self):
        """Number of heads with separate scores."""
        return self.num_heads if self.has_heads else 1

    @computes("query")
    @promises(UNPLACED, PLAIN)
    def project_query(self, query, start_index=0):
        """Returns the queries for `compare`, [B, T, Dq] or [B, N, T, H].

        Args:
            query: [B, T, Dq].
            start_index: Position of the first query among the keys.
        """
        return query

    @computes("key", "value")
    @promises(UNPLACED)
    def project_memory(self, value, key=None, start_index=0):
        """Returns `{"key": ..., "value": ...}` for `compare` and `weighted_sum`.

        Args:
            value: [B, S, Dv].
            key: [B, S, Dk]; defaults to `value`.
            start_index: Position of the first key, if the keys are appended to a cache.
        """
        return {"key": value if key is None else key, "value": value}

    def compare(self, query, key, visibility):
        """Returns scores [B, T, S] or [B, N, T, S] of projected queries and keys.

        Args:
            query: From `project_query`.
            key: From `project_memory`.
            visibility: The `Visibility`, which contains masks and positions.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `compare`.")

    @computes("softmax(scores)")
    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def normalize(self, scores, query, visibility):
        """Returns the attention weights, in the shape of the scores.

        Args:
            scores: From `compare`, plus the bias.
            query: From `project_query`.
            visibility: The `Visibility`.
        """
        return self.normalization.normalize(scores, visibility.mask())

    @computes("weights · value")
    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def weighted_sum(self, weights, value, visibility):
        """Returns the sum of the values, [B, T, Dv] or [B, N, T, H].

        Args:
            weights: After dropout.
            value: From `project_memory`.
            visibility: The `Visibility`.
        """
        return ops.matmul(weights, value)

    @computes("weighted_sum")
    @promises(PLAIN)
    def project_output(self, output):
        """Returns the layer's output from the weighted sum of the values."""
        return output

    @promises(PLAIN)
    def finish(self, output, inputs):
        """Returns the layer's output from the weighted sum of the values and the layer's inputs [B, T, Dq]."""
        return self.project_output(output)

    def compare_layers(self):
        """Returns a list of the sublayers whose weights `compare`, `normalize` or `weighted_sum` reads."""
        return []

    def compare_weights(self):
        """Returns the weights of the layer itself, of `compare_layers` and of `normalization`, trainable or not."""
        sublayers = self._flatten_layers(include_self=False)
        sublayer_weights = {id(weight) for layer in sublayers for weight in layer.weights}
        own_weights = [weight for weight in self.weights if id(weight) not in sublayer_weights]
        return own_weights + [weight for layer in self._layers_with_weights() for weight in layer.weights]

    def _layers_with_weights(self):
        return [*self.compare_layers(), self.normalization]

    def is_repeatable(self):
        """Returns whether a second pass repeats the results: a user's score may draw random numbers or count calls."""
        return all(len(layer.variables) == len(layer.weights) for layer in self._layers_with_weights())

    def is_pairwise(self):
        """Returns whether scores and weighted sums can be computed in tiles of queries × keys.

        Each score, and each term of a sum, must then depend on its own query, key and positions alone. A subclass that
        overrides one of these methods marks it as `PAIRWISE`, see `zoo.layers.core.facts`.
        """
        is_pairwise = keeps(self, PAIRWISE, ("attend_rows", "compare", "normalize", "weighted_sum"))
        return self.has_softmax and not self.needs_all_keys and is_pairwise

    @property
    def has_softmax(self):
        """Whether the normalisation is the plain softmax."""
        return type(self.normalization) is SoftmaxNormalization

    def is_plain(self):
        """Returns whether `compute_attention` computes calls that have only inputs, sequence masks and dropout."""
        has_plain_steps = keeps(self, PLAIN, _STEPS) and keeps(self.normalization, PLAIN, ("normalize",))
        return has_plain_steps and self.visibility is None and self.max_keys() is None

    def compute_attention(self, query, value, key, mask, seed):
        """Returns the output [B, T, D] and the weights of a layer that `is_plain`, computed by its formula.

        The results are those of the separate steps; a subclass that overrides one of them no longer `is_plain`.

        Args:
            query: [B, T, Dq], zero where masked, like value and key.
            value: [B, S, Dv].
            key: [B, S, Dk].
            mask: Boolean [B, T, S], with heads [B, 1, T, S]; sizes may be 1. Or `None`.
            seed: The seed of the dropout, or `None` if it is not active.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `compute_attention`.")

    def pair_size(self):
        """Returns how many numbers `compare` computes for a pair of one query and one key, in one head."""
        return 1

    def max_keys(self):
        """Returns the largest number of keys, or `None` for any number; later keys are masked."""
        return None

    @property
    def effective_rule(self):
        """The conjunction of the layer's own `VisibilityRule` and its option `visibility`; `None` without both."""
        return self.visibility

    @property
    def reach(self):
        """The largest distance from a query back to a key that it may attend to, or `None` for any distance."""
        return None if self.effective_rule is None or self.needs_all_keys else self.effective_rule.reach

    @property
    def kept_first(self):
        """The number of first keys to which a query may attend at any distance."""
        return 0 if self.reach is None else self.effective_rule.kept_first

    def first_position(self, lengths, causal):
        """Returns the default position of the first query among the keys; `lengths` are (T, S)."""
        return lengths[1] - lengths[0]

    @property
    def uses_positions(self):
        """Whether the projections may depend on the positions of their inputs."""
        return not keeps(self, UNPLACED, ("project_query", "project_memory"))

    def can_fuse(self, masked, biased):
        """Returns whether this layer has a `fused_output` for a call with a mask (`masked`) or a bias (`biased`)."""
        return False

    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def attend_rows(self, query, memory, visibility, bias=None, seed=None):
        """Returns a dict of `output`, `weights` and `any_visible` for some of the queries.

        For the arguments see `attend`; `seed` is that of the dropout, or `None` if dropout is not active.
        """
        scores = self.compare(query, memory["key"], visibility)
        if visibility.rule is not None:
            visibility = visibility.chosen_by(scores)
        if bias is not None:
            scores = ops.cast(scores, backend.result_type(scores.dtype, bias.dtype)) + bias
        weights = ops.cast(self.normalize(scores, query, visibility), self.compute_dtype)
        dropped = weights if seed is None else drop_weights(weights, self.dropout, seed)
        output = self.weighted_sum(dropped, memory["value"], visibility)
        return {"output": output, "weights": weights, "any_visible": visibility.any_visible()}

    def fused_output(self, query, memory, visibility, bias):
        """Returns the weighted sum of the values, computed by the backend's kernel; for the arguments see `attend`."""
        raise NotImplementedError(f"{type(self).__name__} has no fused kernel.")
