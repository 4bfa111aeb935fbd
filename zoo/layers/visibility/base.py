"""Base of the visibility rules, which restrict the keys to which a query attends, and how rules combine."""

import dataclasses
import inspect
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from zoo.layers.core.facts import overridden_since

# Mask inputs are arguments of a call that rules read: an integer for each query [B, T], each key [B, S], or each
# sequence [B].
QUERY_INPUTS = ("query_segment_ids",)
KEY_INPUTS = ("segment_ids",)
SEQUENCE_INPUTS = ("prefix_length",)
INPUTS = (*QUERY_INPUTS, *KEY_INPUTS, *SEQUENCE_INPUTS)


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of queries and keys, as integers that broadcast to [B, N, T, S].

    Args:
        batch: Indices of the sequences, [B, 1, 1, 1].
        head: Indices of the heads, [N, 1, 1].
        query: Positions of the queries among the keys, [1, 1, T, 1]; [B, 1, T, 1] in blocks of local attention.
        key: Positions of the keys, [1, 1, 1, S]; [B, 1, 1, S] in blocks of local attention.
        inputs: Mask inputs by name: `query_segment_ids` [B, 1, T, 1], `segment_ids` [B, 1, 1, S], `prefix_length`
            [B, 1, 1, 1].
    """

    batch: Any
    head: Any
    query: Any
    key: Any
    inputs: dict[str, Any] = dataclasses.field(default_factory=dict)


class Range(NamedTuple):
    """The smallest and the largest of some integers."""

    first: Any
    last: Any

    def meets(self, other):
        """Returns whether the two ranges have a number in common."""
        return ops.logical_and(self.first <= other.last, other.first <= self.last)


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Blocks of queries × keys, as ranges that broadcast to [B, I, J].

    Args:
        query: Range of the positions of the queries in each row of blocks, [I, 1].
        key: Range of the positions of the keys in each column of blocks, [J].
        inputs: Ranges of the mask inputs by name: `query_segment_ids` [B, I, 1], `segment_ids` [B, 1, J],
            `prefix_length` [B, 1, 1].
    """

    query: Range
    key: Range
    inputs: dict[str, Range] = dataclasses.field(default_factory=dict)


FORMER_NAMES = {"sees": "allows", "may_see": "may_allow", "sees_all": "allows_all"}
"""The names of methods that rules of users may still call and override."""


class FormerNames:
    """Mixin of classes whose methods `allows`, `may_allow` and `allows_all` had other names."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for former, name in FORMER_NAMES.items():
            defining = next((base for base in cls.__mro__ if vars(base).keys() & {former, name}), FormerNames)
            if defining is cls or not issubclass(defining, FormerNames):  # or a mixin
                method = vars(defining).get(name) or vars(defining)[former]
                setattr(cls, former, method)
                setattr(cls, name, method)


BOUNDS = ("may_allow", "allows_all", "span", "reach", "kept_first", "is_relative")
"""What a rule states about its `allows`, from which layers conclude that pairs need not be computed or stored."""


class VisibilityRule(FormerNames):
    """Base of the rules that restrict the keys to which a query attends, by positions and by mask inputs.

    An attention layer takes a rule as `visibility`. With `a & b` a query attends to the keys that both rules allow,
    with `a | b` to those that either allows. Positions count from the first key, even with a cache; the queries are at
    the end of the keys, or begin at `start_index`. Masks of the call restrict the keys further.

    A subclass overrides `allows` and, so that blocks of pairs can be skipped, `may_allow`. A subclass of another rule
    that overrides `allows` inherits no bounds: its `may_allow`, `allows_all`, `span`, `reach`, `kept_first` and
    `is_relative` are those of this class unless it states them. `needs` names the mask inputs that a rule requires.
    Layers that hold a registered rule can be saved if its arguments are attributes of the same names, or if it
    overrides `get_config`.

    Returns:
        Each method returns a boolean tensor.

    Example:
        >>> import keras, numpy as np
        >>> from keras import ops
        >>> from zoo.layers import MultiHeadAttention, VisibilityRule
        >>> @keras.saving.register_keras_serializable(package="my_layers")
        ... class SameParity(VisibilityRule):
        ...     def allows(self, pairs):
        ...         return ops.equal(pairs.query % 2, pairs.key % 2)
        >>> inputs = np.ones((1, 4, 8), "float32")
        >>> layer = MultiHeadAttention(num_heads=2, key_dim=4, visibility=SameParity())
        >>> _, weights = layer(inputs, inputs, return_attention_scores=True)
        >>> print(np.round(weights[0, 0], 2))
        [[0.5 0.  0.5 0. ]
         [0.  0.5 0.  0.5]
         [0.5 0.  0.5 0. ]
         [0.  0.5 0.  0.5]]
    """

    needs: tuple[str, ...] = ()
    replaces_causal = False
    """Whether the rule itself restricts later keys, so that caches and `use_causal_mask` do not mask them.

    In `a | b` they still mask later keys that only the other rule allows.
    """
    span: int | None = None
    """The largest number of keys to which a query attends, if they are contiguous; tiles are about as small."""

    reach: int | None = None
    """The largest distance back to which a query attends: the number of earlier keys that a rolling cache stores."""
    kept_first: int = 0
    """The number of first keys to which every query may attend in addition; a rolling cache never drops them."""
    is_relative = False
    """Whether `allows` depends on positions only by the distance from the query to the key."""
    chooses = False
    """Whether the allowed keys depend on the scores, by `choose`."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for name in BOUNDS:
            if overridden_since(cls, ("allows",), name):  # the bound is of an `allows` that `cls` does not use
                for alias in (name, *(former for former, new in FORMER_NAMES.items() if new == name)):
                    setattr(cls, alias, vars(VisibilityRule)[name])

    @property
    def skips(self):
        """Whether there may be blocks in which no query may attend to a key."""
        return type(self).may_allow is not VisibilityRule.may_allow

    def allows(self, pairs):
        """Returns which query may attend to which key, boolean, of a shape that broadcasts to [B, N, T, S].

        Args:
            pairs: The `Pairs`.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `allows`.")

    def may_allow(self, blocks):
        """Returns in which blocks a query may attend to a key, boolean, of a shape that broadcasts to [B, I, J].

        Blocks where this is False are not computed. True is always correct.

        Args:
            blocks: The `Blocks`.
        """
        return ops.ones((1, 1), dtype="bool")

    def allows_all(self, blocks):
        """Returns in which blocks every query may attend to every key, in the same shape.

        Blocks where this is True are computed without a mask. False is always correct.

        Args:
            blocks: The `Blocks`.
        """
        return ops.zeros((1, 1), dtype="bool")

    def choose(self, scores, allowed, query_positions):
        """Returns which of the allowed keys a query attends to, boolean [..., T, S], for a rule that `chooses`.

        Args:
            scores: [..., T, S], without the bias of the call.
            allowed: Keys that are allowed by `allows`, all other rules and masks, boolean [..., T, S].
            query_positions: [T].
        """
        raise NotImplementedError(f"{type(self).__name__} must override `choose`.")

    def __and__(self, other):
        return Both(self, other)

    def __or__(self, other):
        return Either(self, other)

    def get_config(self):
        """Returns the arguments of the constructor that are attributes of the same names."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    @classmethod
    def from_config(cls, config):
        """Returns the rule of a configuration."""
        return cls(**config)

    def __eq__(self, other):
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self):
        return hash((type(self), repr(self)))

    def __repr__(self):
        options = ", ".join(f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({options})"


class _Combination(VisibilityRule):
    """Base of the combinations of two rules."""

    operator: str
    combine: Callable[[Any, Any], Any]

    def __init__(self, first, second):
        self.first, self.second = check_rule(first), check_rule(second)
        self.needs = (*self.first.needs, *(name for name in self.second.needs if name not in self.first.needs))
        self.replaces_causal = self.first.replaces_causal or self.second.replaces_causal

    @property
    def is_relative(self):
        return self.first.is_relative and self.second.is_relative

    def allows(self, pairs):
        return self.combine(self.first.allows(pairs), self.second.allows(pairs))

    def may_allow(self, blocks):
        return self.combine(self.first.may_allow(blocks), self.second.may_allow(blocks))

    def allows_all(self, blocks):
        return self.combine(self.first.allows_all(blocks), self.second.allows_all(blocks))

    def get_config(self):
        parts = {"first": self.first, "second": self.second}
        return {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}

    @classmethod
    def from_config(cls, config):
        return cls(**{name: keras.saving.deserialize_keras_object(part) for name, part in config.items()})

    def __eq__(self, other):
        return type(self) is type(other) and (self.first, self.second) == (other.first, other.second)

    __hash__ = VisibilityRule.__hash__

    def __repr__(self):
        return f"({self.first!r} {self.operator} {self.second!r})"


@keras.saving.register_keras_serializable(package="attention_zoo")
class Both(_Combination):
    """The keys that two rules allow: `first & second`."""

    operator = "&"
    combine = staticmethod(ops.logical_and)

    def __init__(self, first, second):
        super().__init__(first, second)
        if self.first.chooses and self.second.chooses:
            raise ValueError(f"Only one of two rules may choose keys by their scores. Received: {self!r}.")
        self.chooses = self.first.chooses or self.second.chooses

    @property
    def _bound(self):
        """The `reach` and `kept_first` of the rule that allows fewer keys, since either rule is a bound; or `None`."""
        bounds = [(rule.reach, rule.kept_first) for rule in (self.first, self.second) if rule.reach is not None]
        return None if self.chooses or not bounds else min(bounds, key=sum)  # blocks of choices begin at key 0

    @property
    def reach(self):
        return None if self._bound is None else self._bound[0]

    @property
    def kept_first(self):
        return 0 if self._bound is None else self._bound[1]

    def choose(self, scores, allowed, query_positions):
        rule = self.first if self.first.chooses else self.second
        return rule.choose(scores, allowed, query_positions)

    @property
    def span(self):
        return min((rule.span for rule in (self.first, self.second) if rule.span is not None), default=None)

    @property
    def skips(self):
        return self.first.skips or self.second.skips


@keras.saving.register_keras_serializable(package="attention_zoo")
class Either(_Combination):
    """The keys that either of two rules allows: `first | second`."""

    operator = "|"
    combine = staticmethod(ops.logical_or)

    def __init__(self, first, second):
        super().__init__(first, second)
        if self.first.chooses or self.second.chooses:
            raise ValueError(f"A rule that chooses keys by scores combines only by `&`. Received: {self!r}.")

    @property
    def reach(self):
        reaches = self.first.reach, self.second.reach
        return None if None in reaches else max(reaches)

    @property
    def kept_first(self):
        return max(self.first.kept_first, self.second.kept_first)

    @property
    def skips(self):
        return self.first.skips and self.second.skips


def check_rule(rule):
    """Returns a visibility rule.

    Raises:
        ValueError: For any other object.
    """
    if not isinstance(rule, VisibilityRule):
        raise ValueError(
            "`visibility` must be a VisibilityRule, such as SlidingWindow(128) or Causal() & Segments(). "
            f"Received: visibility={rule!r}."
        )
    return rule


def check_count(name, count, least=0):
    """Returns an integer of at least `least`, of Python or NumPy, as a Python integer.

    Raises:
        ValueError: For any other value.
    """
    if not isinstance(count, numbers.Integral) or isinstance(count, bool) or count < least:
        raise ValueError(f"`{name}` must be an integer, {least} or more. Received: {name}={count!r}.")
    return int(count)
