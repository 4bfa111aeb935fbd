"""Learning rate schedules."""

import keras
from keras import ops


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear rise to the peak, then `peak · √(warmup / step)` or the peak itself, at the end a linear fall to zero.

    Args:
        peak: Largest learning rate.
        warmup_steps: Steps until the peak; with 0 it is the first step.
        inverse_sqrt: Whether the rate falls behind the peak.
        total_steps: Steps in the run, where there is a fall at the end.
        cooldown: Share of the steps that the fall takes, which multiplies the rest; 0 for none.

    Reference:
        Vaswani et al. 2017, section 5.3, https://arxiv.org/abs/1706.03762;
        Hu et al. 2024 (the fall at the end), section 4, https://arxiv.org/abs/2404.06395
    """

    def __init__(self, peak, warmup_steps, inverse_sqrt, total_steps=0, cooldown=0.0):
        super().__init__()
        self.peak, self.warmup_steps, self.inverse_sqrt = peak, warmup_steps, inverse_sqrt
        self.total_steps, self.cooldown = total_steps, cooldown

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        warmup = float(max(self.warmup_steps, 1))
        rising = step / warmup
        behind = ops.sqrt(warmup / step) if self.inverse_sqrt else ops.ones_like(step)
        rate = self.peak * ops.minimum(rising, behind)
        if not self.cooldown:
            return rate
        return rate * ops.clip((self.total_steps + 1 - step) / (self.cooldown * self.total_steps), 0.0, 1.0)

    def get_config(self):
        names = ("peak", "warmup_steps", "inverse_sqrt", "total_steps", "cooldown")
        return {name: getattr(self, name) for name in names}
