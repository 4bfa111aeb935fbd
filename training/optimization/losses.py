"""The losses by name, and how a new one is registered. No Keras here: names are checked before the backend starts."""

from collections.abc import Callable
from typing import Any

from zoo.errors import InputError, unknown_name

Loss = Callable[[Any, Any, float], Any]
"""`loss(symbols, logits, label_smoothing)`: integers [...] and logits [..., V] become losses [...]."""

_LOSSES: dict[str, Loss] = {}


def register_loss(name: str) -> Callable[[Loss], Loss]:
    """Returns a decorator that registers a loss for the setting `training.loss`.

    It computes the loss of each symbol, or class, from its logits. Which symbols count, and the mean over them and
    over several devices, is the work of `training.optimization.cross_entropy.MeanOverSymbols`.

    Args:
        name: The value of the setting.

    Raises:
        ValueError: If the name is taken.

    Example:
        >>> from keras import ops
        >>> from training.optimization.losses import register_loss
        >>> @register_loss("brier")
        ... def brier(symbols, logits, label_smoothing):
        ...     wanted = ops.one_hot(symbols, logits.shape[-1])
        ...     return ops.sum(ops.square(ops.softmax(logits) - wanted), axis=-1)
    """

    def register(loss: Loss) -> Loss:
        if name in _LOSSES:
            raise ValueError(f"A loss named {name!r} is registered already.")
        _LOSSES[name] = loss
        return loss

    return register


def get_loss(name: str) -> Loss:
    """Returns the loss of a name; raises InputError, with the close ones, if there is no such loss."""
    if name not in _LOSSES:
        raise InputError(f"{unknown_name('loss', name, _LOSSES)} A module named by --import may register others.")
    return _LOSSES[name]


@register_loss("cross_entropy")
def _cross_entropy(symbols: Any, logits: Any, label_smoothing: float) -> Any:
    from training.optimization.cross_entropy import cross_entropy

    return cross_entropy(symbols, logits, label_smoothing)
