"""Single-head attention whose score is part of its name."""

from zoo.layers.attention import Attention
from zoo.layers.score import Score


class NamedAttention(Attention):
    """Base of the single-head attention layers that make their score themselves, from options of their own.

    A subclass says which class of score, and hands over the options that the score takes; they become attributes and
    part of the configuration, in the place of the score.

    Args:
        options: Options of the score, by name.
        dtype: Dtype or policy of the layer and of its score.
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.
    """

    score_class: type[Score]

    def __init__(self, options, dtype=None, **kwargs):
        score = self.score_class(**options, dtype=dtype, name="score")
        super().__init__(score, dtype=dtype, **kwargs)
        for name in options:
            setattr(self, name, getattr(score, name))
        self._option_names = tuple(options)

    def get_config(self):
        config = super().get_config()
        del config["score"]
        options = self.score.get_config()
        return {**config, **{name: options[name] for name in self._option_names}}

    @classmethod
    def from_config(cls, config):
        return cls(**config)
