"""Learning rate schedules."""

import keras
from keras import ops


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear rise to the peak, then `peak · √(warmup / step)` or the peak itself.

    Args:
        peak: Largest learning rate.
        warmup_steps: Steps until the peak; with 0 it is the first step.
        inverse_sqrt: Whether the rate falls behind the peak.

    Reference:
        Vaswani et al. 2017, section 5.3, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, peak, warmup_steps, inverse_sqrt):
        super().__init__()
        self.peak, self.warmup_steps, self.inverse_sqrt = peak, warmup_steps, inverse_sqrt

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        warmup = float(max(self.warmup_steps, 1))
        rising = step / warmup
        behind = ops.sqrt(warmup / step) if self.inverse_sqrt else ops.ones_like(step)
        return self.peak * ops.minimum(rising, behind)

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps, "inverse_sqrt": self.inverse_sqrt}
