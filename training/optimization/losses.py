"""The registry of losses. Without Keras, so that names are checked before the backend starts."""

from collections.abc import Callable
from typing import Any

from zoo.errors import InputError, unknown_name

Loss = Callable[[Any, Any, float], Any]
"""`loss(tokens, logits, label_smoothing)` takes integers [...] and logits [..., V], and returns losses [...]."""

_LOSSES: dict[str, Loss] = {}


def register_loss(name: str) -> Callable[[Loss], Loss]:
    """Returns a decorator that registers a loss for the setting `training.loss`.

    The loss is a function that computes the loss of each token, or class, from its logits.
    `training.optimization.cross_entropy.MeanOverTokens` masks padding, and averages over tokens and devices.

    Args:
        name: The value of the setting.

    Raises:
        ValueError: If the name is already registered.

    Example:
        >>> from keras import ops
        >>> from training.optimization.losses import register_loss
        >>> @register_loss("brier")
        ... def brier(tokens, logits, label_smoothing):
        ...     targets = ops.one_hot(tokens, logits.shape[-1])
        ...     return ops.sum(ops.square(ops.softmax(logits) - targets), axis=-1)
    """

    def register(loss: Loss) -> Loss:
        if name in _LOSSES:
            raise ValueError(f"A loss named {name!r} is registered already.")
        _LOSSES[name] = loss
        return loss

    return register


def get_loss(name: str) -> Loss:
    """Returns a loss by its name; raises InputError, with close names, if there is no such loss."""
    if name not in _LOSSES:
        raise InputError(f"{unknown_name('loss', name, _LOSSES)} Modules of --import may register others.")
    return _LOSSES[name]


@register_loss("cross_entropy")
def _cross_entropy(tokens: Any, logits: Any, label_smoothing: float) -> Any:
    from training.optimization.cross_entropy import cross_entropy

    return cross_entropy(tokens, logits, label_smoothing)
