"""Base of multi-head attention in linear time: a state of constant size takes the place of keys and values."""

from keras import ops

from zoo.layers.attention import cache as caches
from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.attention.wide_state import WideState
from zoo.layers.core import masks
from zoo.layers.core.facts import overridden_since
from zoo.layers.core.lazy import value_of
from zoo.layers.visibility.visibility import build_visibility

# Options of `MultiHeadAttention` that act on scores and their softmax, with their defaults.
_UNSUPPORTED_OPTIONS = {"score": None, "share_score": True, "logit_softcap": None, "dropout": 0.0}
# Methods of the quadratic path; overriding one disables the linear path.
_QUADRATIC_METHODS = ("compare", "normalize", "weighted_sum", "sum_heads", "attend_rows")
_NEVER = 2**31 - 1


class LinearTimeAttention(WideState, MultiHeadAttention):
    """Base of multi-head attention with two paths, whose results agree.

    The *quadratic path* computes the weights of all pairs of queries and keys by `compare`, `normalize` and
    `weighted_sum`. The *linear path*, `attend_linearly`, computes the output from a state of constant size; caches
    contain the state alone. If a subclass of the class that defines `linear_method` overrides a method of the quadratic
    path, it has neither a linear path nor caches.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for queries and keys, H.
        value_dim: Size of each head for values, V. Default: `key_dim`.
        **kwargs: Other options of `MultiHeadAttention`, except `score`, `share_score`, `logit_softcap`, `dropout`,
            `visibility` and `normalization`. `positions` must act on queries and keys.

    Raises:
        ValueError: For one of these options, and for `positions` that act on scores.
    """

    state_name: str
    """Name of the state in caches."""
    linear_method: str
    """The method that defines the linear path."""

    def __init__(self, num_heads, key_dim, value_dim=None, **kwargs):
        name = type(self).__name__
        for option, default in _UNSUPPORTED_OPTIONS.items():
            if kwargs.get(option, default) != default:
                raise ValueError(
                    f"{name} takes no `{option}`: it has no softmax of scores. Received: {option}={kwargs[option]!r}."
                )
        super().__init__(num_heads, key_dim, value_dim, **kwargs)
        if self.positions is not None and self.positions.acts_on_scores:
            raise ValueError(
                f"`positions` of {name} must act on queries and keys, like RotaryPositions. "
                f"Received: positions={self.positions!r}."
            )
        if self.visibility is not None or not self.has_softmax:
            raise ValueError(
                f"{name} sums over the keys: it takes no `visibility` and no `normalization`. "
                f"Received: visibility={self.visibility!r}, normalization={self.normalization!r}."
            )

    @property
    def state_shape(self):
        """Shape of the state of a head."""
        raise NotImplementedError(f"{type(self).__name__} must override `state_shape`.")

    def attend_linearly(self, query, memory, visibility, start, previous=None):
        """Returns the dict of `attend`, and the state after all keys.

        Args:
            query: From `project_query`.
            memory: From `project_memory`.
            visibility: The `Visibility`, which has no `pair_mask`.
            start: Position of the first query.
            previous: State before the first key, or `None` if there are no earlier keys.

        Returns:
            A dict of `output` and `any_visible`; and the state, a dict of `state_name` [B, N, *state_shape] and
            `any_visible` [B], whether there is any unmasked key.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `attend_linearly`.")

    def has_linear_path(self):
        """Returns whether no subclass overrides the quadratic path without the linear one."""
        return not overridden_since(self, _QUADRATIC_METHODS, self.linear_method)

    def can_fuse(self, masked, biased):
        return False

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache for step-by-step causal self-attention.

        Args:
            batch_size: B.
            length: Not used: the size of the state does not depend on the number of positions.

        Returns:
            The state (see `WideState`), `any_visible` [B], whether there is any unmasked key, and `index`.
        """
        if not self.has_linear_path():
            raise ValueError(
                f"{type(self).__name__} has no cache, because it overrides one of {', '.join(_QUADRATIC_METHODS)}: "
                "a cache contains the state of the linear path."
            )
        return {
            self.state_name: self.stored_zeros((batch_size, self.num_heads, *self.state_shape)),
            "any_visible": ops.zeros((batch_size,), dtype="bool"),
            "index": ops.zeros((), dtype="int32"),
        }

    def step(self, query, value, key, cache, query_mask, value_mask, key_mask, **options):
        self._check_step(query, value, options)
        index, lengths = cache["index"], (ops.shape(query)[1], ops.shape(value)[1])
        start = value_of(caches.first_query_position(0, lengths[1], lengths[0]))  # among the new keys
        # Masks of values may cover the capacity of the cache; only their part for the new positions is read.
        value_mask = masks.mask_of_new(value_mask, "value_mask", index, lengths[1])
        key_mask = masks.conjunction(value_mask, masks.mask_of_new(key_mask, "key_mask", index, lengths[1]))
        visibility = build_visibility(lengths, start, query_mask, key_mask=key_mask, causal=True, heads=True)
        value, key = masks.zero_masked(value, visibility.key_mask), masks.zero_masked(key, visibility.key_mask)
        memory = self.project_memory(value, key, index)
        inputs = masks.zero_masked(query, visibility.query_mask)
        query = self.project_query(inputs, index + start)
        previous = {self.state_name: self.from_stored(cache[self.state_name]), "any_visible": cache["any_visible"]}
        results, state = self.attend_linearly(query, memory, visibility, start, previous)
        output = self._zero_empty_rows(self.finish(results["output"], inputs), results["any_visible"])
        stored = self.to_stored(state[self.state_name])
        return output, {self.state_name: stored, "any_visible": state["any_visible"], "index": index + lengths[1]}

    def _check_step(self, query, value, options):
        name = type(self).__name__
        options = {option: value for option, value in options.items() if option != "training"}  # there is no dropout
        unsupported = [f"`{option}`" for option, value in options.items() if value is not None and value is not False]
        if unsupported:
            raise ValueError(
                f"The cache of {name} contains no keys from which to compute weights: a call with `cache` takes no "
                f"{', '.join(unsupported)}."
            )
        queries, keys = query.shape[1], value.shape[1]
        if isinstance(queries, int) and isinstance(keys, int) and queries > keys:
            raise ValueError(
                f"A call of {name} with `cache` must have at least as many values as queries. "
                f"Received: {queries} queries and {keys} values."
            )

    def get_config(self):
        config = super().get_config()
        del config["score"]
        return config


def zero_masked_keys(key, visibility):
    """Returns keys [B, N, S, ...] with zeros where they are masked."""
    if visibility.key_mask is None:
        return key
    return ops.where(visibility.key_mask[:, None, :, None], key, ops.zeros_like(key))


def any_visible_key(visibility, previous):
    """Returns whether each query attends to any key, [B, 1, T, 1], and whether any key is unmasked, [B].

    Both are `None` if nothing can be masked. `previous` is the state before the first key, or `None`.
    """
    if not visibility.may_hide_all:
        return None, None
    positions, mask = visibility.key_positions[None], visibility.key_mask
    positions = positions if mask is None else ops.where(mask, positions, _NEVER)
    first = ops.min(positions, axis=1, initial=_NEVER)  # [B or 1]
    if previous is not None:
        first = ops.where(previous["any_visible"], -1, first)
    last = visibility.query_positions if visibility.causal else ops.full_like(visibility.query_positions, _NEVER - 1)
    any_visible = first[:, None] <= last  # [B or 1, T]
    if visibility.query_mask is not None:
        any_visible = ops.logical_and(any_visible, visibility.query_mask)
    return any_visible[:, None, :, None], first < _NEVER
