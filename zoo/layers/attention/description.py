"""What attention computes: functions of tensors and positions, which its subclasses override."""

from keras import backend, ops

from zoo.layers.core.base import KeepsQuantization
from zoo.layers.core.dropout import drop_weights
from zoo.layers.core.facts import IN_KERNEL, PAIRWISE, PLAIN, UNPLACED, keeps, promises
from zoo.layers.normalizations import SoftmaxNormalization

# What `compute_attention` writes out.
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
    """What attention computes: project → compare → normalise → drop → sum → project.

    `weights = normalize(compare(query, key) + bias)`, `output = weighted_sum(weights, value)`, where masked positions
    have weight 0. Which positions are visible is in a `Visibility`. Axes: B batch, T queries, S keys and values, N
    heads, H size of a head, D features.
    """

    has_heads = False
    follows = False
    """Whether the weights of a query follow from those of the one before; then they are among the states of a cell."""

    @property
    def num_score_heads(self):
        """Number of heads that have scores of their own."""
        return self.num_heads if self.has_heads else 1

    @promises(UNPLACED, PLAIN)
    def project_query(self, query, start_index=0):
        """Returns the queries as `compare` takes them, [B, T, Dq] or [B, N, T, H].

        Args:
            query: [B, T, Dq].
            start_index: Position of the first one among the keys.
        """
        return query

    @promises(UNPLACED)
    def project_memory(self, value, key=None, start_index=0):
        """Returns `{"key": ..., "value": ...}` as `compare` and the weighted sum take them.

        Args:
            value: [B, S, Dv].
            key: [B, S, Dk]; defaults to `value`.
            start_index: Position of the first one, if they are appended to a cache.
        """
        return {"key": value if key is None else key, "value": value}

    def compare(self, query, key, visible):
        """Returns scores [B, T, S] or [B, N, T, S] of projected queries and keys.

        Args:
            query: From `project_query`.
            key: From `project_memory`.
            visible: The `Visibility`, which knows the positions.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `compare`.")

    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def normalize(self, scores, query, visible):
        """Returns the attention weights, in the shape of the scores.

        Args:
            scores: From `compare`, with the bias.
            query: From `project_query`.
            visible: The `Visibility`.
        """
        return self.normalization.normalize(scores, visible.mask())

    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def weighted_sum(self, weights, value, visible):
        """Returns the sum of the values, [B, T, Dv] or [B, N, T, H].

        Args:
            weights: After dropout.
            value: From `project_memory`.
            visible: The `Visibility`.
        """
        return ops.matmul(weights, value)

    @promises(PLAIN)
    def project_output(self, output):
        """Returns the layer's output from the weighted sum of the values."""
        return output

    @promises(PLAIN)
    def finish(self, output, inputs):
        """Returns the layer's output from the weighted sum of the values, and the inputs [B, T, Dq] of the queries."""
        return self.project_output(output)

    def compare_layers(self):
        """Returns the sublayers whose weights `compare`, `normalize` or `weighted_sum` read, a list."""
        return []

    def compare_weights(self):
        """Returns the weights that the layer, `compare_layers` and `normalization` hold, also those not trained."""
        sublayers = self._flatten_layers(include_self=False)
        of_sublayers = {id(weight) for layer in sublayers for weight in layer.weights}
        own = [weight for weight in self.weights if id(weight) not in of_sublayers]
        return own + [weight for layer in self._layers_of_weights() for weight in layer.weights]

    def _layers_of_weights(self):
        return [*self.compare_layers(), self.normalization]

    def is_repeatable(self):
        """Returns whether a second pass gives the same: a user's score may draw random numbers or count its calls."""
        return all(len(layer.variables) == len(layer.weights) for layer in self._layers_of_weights())

    def is_pairwise(self):
        """Returns whether each score and each term of the sums depends on its own query, key and positions alone.

        It may then be computed in tiles of queries × keys. A method that is overridden counts if it is marked as
        `PAIRWISE` in `zoo.layers.core.facts`.
        """
        needs_all_keys = getattr(getattr(self, "score", None), "needs_all_keys", False)
        by_pairs = keeps(self, PAIRWISE, ("attend_rows", "compare", "normalize", "weighted_sum"))
        return self.has_softmax and not needs_all_keys and by_pairs

    @property
    def has_softmax(self):
        """Whether the scores become weights by the softmax itself."""
        return type(self.normalization) is SoftmaxNormalization

    def is_plain(self):
        """Returns whether `compute_attention` computes the calls with inputs, masks of sequences and dropout alone."""
        by_formula = keeps(self, PLAIN, _STEPS) and keeps(self.normalization, PLAIN, ("normalize",))
        return by_formula and self.visibility is None and self.max_keys() is None

    def compute_attention(self, query, value, key, mask, seed):
        """Returns the output [B, T, D] and the weights of a layer that `is_plain`, by its formula.

        What it computes stands in the steps as well, of which every one can be overridden.

        Args:
            query: [B, T, Dq], zero where masked, like value and key.
            value: [B, S, Dv].
            key: [B, S, Dk].
            mask: Boolean [B, T, S], with heads [B, 1, T, S]; sizes may be 1. Or `None`.
            seed: The seed of the dropout, or `None` if it is not active.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `compute_attention`.")

    def pair_size(self):
        """Returns how many numbers are computed to compare one query with one key, in one head."""
        return 1

    def max_keys(self):
        """Returns the number of keys that can be compared, `None` for any; keys after these are masked."""
        return None

    @property
    def whole_rule(self):
        """The rule that holds all that is known of which keys a query may see by their positions, or `None`."""
        return self.visibility

    @property
    def reach(self):
        """How many keys before its own position a query may see at most, `None` for any number."""
        needs_all_keys = getattr(getattr(self, "score", None), "needs_all_keys", False)
        return None if self.whole_rule is None or needs_all_keys else self.whole_rule.reach

    @property
    def kept_first(self):
        """How many of the first keys a query may see besides, however far it is from them."""
        return 0 if self.reach is None else self.whole_rule.kept_first

    def first_position(self, lengths, causal):
        """Returns the default position of the first query among the keys, for lengths (T, S)."""
        return lengths[1] - lengths[0]

    @property
    def places_inputs(self):
        """Whether projections may depend on the positions of their inputs."""
        return not keeps(self, UNPLACED, ("project_query", "project_memory"))

    def can_fuse(self, masked, biased):
        """Returns whether this layer has a `fused_output` for a call with a mask (`masked`) or a bias (`biased`)."""
        return False

    @promises(IN_KERNEL, PAIRWISE, PLAIN)
    def attend_rows(self, query, memory, visible, bias=None, seed=None):
        """Returns the `output`, `weights` and `seen` of some of the queries, all at once, a dict.

        See `attend`; the seed of the dropout is `None` if it is not active.
        """
        scores = self.compare(query, memory["key"], visible)
        if visible.rule is not None:
            visible = visible.chosen_by(scores)
        if bias is not None:
            scores = ops.cast(scores, backend.result_type(scores.dtype, bias.dtype)) + bias
        weights = ops.cast(self.normalize(scores, query, visible), self.compute_dtype)
        dropped = weights if seed is None else drop_weights(weights, self.dropout, seed)
        output = self.weighted_sum(dropped, memory["value"], visible)
        return {"output": output, "weights": weights, "seen": visible.seen()}

    def fused_output(self, query, memory, visible, bias):
        """Returns the weighted sum of the values by the backend's own kernel; see `attend` for the arguments."""
        raise NotImplementedError(f"{type(self).__name__} has no fused kernel.")
