"""Learning rate schedules."""

import math
from typing import Any

import keras
from keras import ops


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to the peak, then one of three shapes, and optionally a linear cooldown to zero.

    With steps counted from 1, after the warm-up: `"constant"`: `peak`; `"inverse_sqrt"`: `peak · √(warmup / step)`;
    `"cosine"`: `peak · (f + (1 − f) · (1 + cos πp) / 2)`, where p runs from 0 at the peak to 1 at the last step, and f
    is `final_rate`.

    Args:
        peak: Largest learning rate.
        warmup_steps: Steps until the peak; with 0 it is the first step.
        shape: The shape after the peak.
        total_steps: Steps in the run, for `"cosine"` and the cooldown.
        cooldown: Share of the steps in the cooldown, whose factor multiplies the shape; 0 for none.
        final_rate: Share of the peak that `"cosine"` ends at.
        accumulate_steps: Batches in a step. Keras calls the schedule for each batch.

    Reference:
        Vaswani et al. 2017, section 5.3, https://arxiv.org/abs/1706.03762;
        Loshchilov and Hutter 2017 (cosine), equation 5, https://arxiv.org/abs/1608.03983;
        Hu et al. 2024 (cooldown), section 4, https://arxiv.org/abs/2404.06395
    """

    def __init__(
        self,
        peak: float,
        warmup_steps: int,
        shape: str = "constant",
        total_steps: int = 0,
        cooldown: float = 0.0,
        final_rate: float = 0.0,
        accumulate_steps: int = 1,
    ):
        super().__init__()
        self.peak, self.warmup_steps, self.shape, self.total_steps = peak, warmup_steps, shape, total_steps
        self.cooldown, self.final_rate, self.accumulate_steps = cooldown, final_rate, accumulate_steps

    def __call__(self, step: Any) -> Any:
        step = ops.cast(ops.floor_divide(step, self.accumulate_steps), "float32") + 1.0
        rate = self.peak * ops.minimum(step / self._warmup, self._after_warmup(step))
        if not self.cooldown:
            return rate
        return rate * ops.clip((self.total_steps + 1 - step) / (self.cooldown * self.total_steps), 0.0, 1.0)

    @property
    def _warmup(self) -> float:
        return float(max(self.warmup_steps, 1))

    def _after_warmup(self, step: Any) -> Any:
        """Returns the share of the peak after the warm-up."""
        if self.shape == "inverse_sqrt":
            return ops.sqrt(self._warmup / step)
        if self.shape == "cosine":
            passed = ops.clip((step - self._warmup) / max(self.total_steps - self._warmup, 1.0), 0.0, 1.0)
            return self.final_rate + (1.0 - self.final_rate) * 0.5 * (1.0 + ops.cos(math.pi * passed))
        return ops.ones_like(step)

    def get_config(self) -> dict[str, Any]:
        names = ("peak", "warmup_steps", "shape", "total_steps", "cooldown", "final_rate", "accumulate_steps")
        return {name: getattr(self, name) for name in names}
