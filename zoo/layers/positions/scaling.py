"""Scaling of the angles of rotary positions, so that a model trained on short texts reads longer ones.

Names and meaning of the options are those of `rope_scaling` (later `rope_parameters`) in checkpoints of Hugging Face.
"""

import dataclasses
import math
import numbers
from typing import ClassVar


def plain_rates(size, max_wavelength):
    """Returns the angle of each pair at position 1, `w^(−2i/R)`, for R = `size` features, a list of R / 2 numbers."""
    return [max_wavelength ** (-2 * pair / size) for pair in range(size // 2)]


def _clip(number):
    return min(max(number, 0.0), 1.0)


def _interpolated(rate, factor, gamma):
    """Returns the weighted mean of a rate, with weight γ, and the rate divided by the factor, with weight 1 − γ."""
    return (1 - gamma) * rate / factor + gamma * rate


def _rotations(rate, length):
    """Returns the number of rotations of a pair in a text of this length."""
    return length * rate / (2 * math.pi)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaling:
    """Base of the scalings.

    Args:
        factor: s, by which the length of texts is multiplied, at least 1.
    """

    factor: float

    rope_type: ClassVar[str]
    attention_scale: ClassVar[float] = 1.0

    def __post_init__(self):
        self._require(self.factor >= 1, "factor", "at least 1")

    def _require(self, is_valid, name, condition):
        if not is_valid:
            raise ValueError(
                f"`{name}` of the scaling {self.rope_type!r} must be {condition}. "
                f"Received: {name}={getattr(self, name)!r}."
            )

    def rates(self, size, max_wavelength):
        """Returns the angle of each pair at position 1, a list of R / 2 numbers; R = `size`, w = `max_wavelength`."""
        raise NotImplementedError(f"{type(self).__name__} must override `rates`.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearScaling(Scaling):
    """Position interpolation: `p / s` in place of p (Chen et al. 2023, section 2.3, equation 4)."""

    rope_type = "linear"

    def rates(self, size, max_wavelength):
        return [rate / self.factor for rate in plain_rates(size, max_wavelength)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NTKScaling(Scaling):
    """NTK-aware: `w' = w · s^(R / (R − 2))`; the slowest pair rotates s times slower, the fastest as before.

    Peng et al. 2023, section 3.1, equation 16 (definition 1).
    """

    rope_type = "ntk"

    def rates(self, size, max_wavelength):
        if size < 4:
            raise ValueError(f"The scaling 'ntk' requires at least four rotated features of a head. Received: {size}.")
        return plain_rates(size, max_wavelength * self.factor ** (size / (size - 2)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class YarnScaling(Scaling):
    """YaRN: pairs with many rotations in the original length are unchanged, pairs with few are interpolated.

    `θ' = (1 − γ) θ / s + γ θ`, and queries and keys are multiplied by `0.1 ln s + 1`, which is a temperature of the
    softmax (Peng et al. 2023, sections 3.2 and 3.4).

    Args:
        original_max_position_embeddings: L, the length of texts in training.
        beta_fast: β; pairs with at least this number of rotations in L are unchanged.
        beta_slow: α; pairs with at most this number of rotations in L are fully interpolated.
        attention_factor: The factor of queries and keys. Default: `0.1 ln s + 1`, or with `mscale` and `mscale_all_dim`
            `(0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1)`.
        mscale: See `attention_factor`.
        mscale_all_dim: See `attention_factor`.
        ramp: The quantity in which γ is linear between α and β: `"dimensions"`, the index of the pair, as in the code
            of the paper's authors and all checkpoints; or `"rotations"`, as in the paper's equation 18.
        truncate: Whether a ramp over dimensions begins and ends at integers.
    """

    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    ramp: str = "dimensions"
    truncate: bool = True

    rope_type = "yarn"

    def __post_init__(self):
        super().__post_init__()
        self._require(self.original_max_position_embeddings > 0, "original_max_position_embeddings", "positive")
        self._require(self.beta_slow > 0, "beta_slow", "positive")
        self._require(self.beta_fast > self.beta_slow, "beta_fast", f"above beta_slow={self.beta_slow}")
        self._require(self.attention_factor is None or self.attention_factor > 0, "attention_factor", "positive")
        self._require(self.ramp in ("dimensions", "rotations"), "ramp", "dimensions or rotations")

    @property
    def attention_scale(self):
        """The factor of rotated queries and keys."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._temperature(self.mscale) / self._temperature(self.mscale_all_dim)
        return self._temperature(1.0)

    def _temperature(self, mscale):
        return 0.1 * mscale * math.log(self.factor) + 1.0

    def rates(self, size, max_wavelength):
        rates = plain_rates(size, max_wavelength)
        by_rotations = self.ramp == "rotations"
        gammas = self._gammas_by_rotations(rates) if by_rotations else self._gammas_by_pair(size, max_wavelength)
        return [_interpolated(rate, self.factor, gamma) for rate, gamma in zip(rates, gammas, strict=True)]

    def _gammas_by_rotations(self, rates):
        rotations = [_rotations(rate, self.original_max_position_embeddings) for rate in rates]
        return [_clip((number - self.beta_slow) / (self.beta_fast - self.beta_slow)) for number in rotations]

    def _gammas_by_pair(self, size, max_wavelength):
        first, last = (self._pair_with(number, size, max_wavelength) for number in (self.beta_fast, self.beta_slow))
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, size - 1)
        last = max(last, first + 0.001)  # a ramp between equal indices becomes a step
        return [1 - _clip((pair - first) / (last - first)) for pair in range(size // 2)]

    def _pair_with(self, rotations, size, max_wavelength):
        """Returns the index, not rounded, of the pair with this number of rotations in the original length."""
        length = self.original_max_position_embeddings
        return size * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(max_wavelength))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3Scaling(Scaling):
    """Llama 3: YaRN's ramp over rotations from `low_freq_factor` to `high_freq_factor`, without a temperature.

    Grattafiori et al. 2024, "The Llama 3 Herd of Models", https://arxiv.org/abs/2407.21783, mentions the method; its
    formula is in the models' published code.

    Args:
        original_max_position_embeddings: L, the length of texts in training.
        low_freq_factor: Pairs with at most this number of rotations in L are fully interpolated.
        high_freq_factor: Pairs with at least this number of rotations in L are unchanged.
    """

    original_max_position_embeddings: int
    low_freq_factor: float
    high_freq_factor: float

    rope_type = "llama3"

    def __post_init__(self):
        super().__post_init__()
        self._require(self.original_max_position_embeddings > 0, "original_max_position_embeddings", "positive")
        low = self.low_freq_factor
        self._require(self.high_freq_factor > low, "high_freq_factor", f"above low_freq_factor={low}")

    def rates(self, size, max_wavelength):
        low, high = self.low_freq_factor, self.high_freq_factor
        rates = plain_rates(size, max_wavelength)
        rotations = [_rotations(rate, self.original_max_position_embeddings) for rate in rates]
        gammas = [_clip((number - low) / (high - low)) for number in rotations]
        return [_interpolated(rate, self.factor, gamma) for rate, gamma in zip(rates, gammas, strict=True)]


SCALINGS = {cls.rope_type: cls for cls in (LinearScaling, NTKScaling, YarnScaling, Llama3Scaling)}
_OPTION_TYPES = {str: "a string", bool: "true or false", numbers.Real: "a number"}


def parse_scaling(scaling):
    """Returns the `Scaling` of a dict such as `{"rope_type": "linear", "factor": 4.0}`, or `None` for `None`.

    Raises:
        ValueError: For an unknown `rope_type`, a missing or unknown option, or a value out of range.
    """
    if scaling is None:
        return None
    cls = SCALINGS.get(scaling.get("rope_type")) if isinstance(scaling, dict) else None
    if cls is None:
        raise ValueError(
            f"`scaling` must be a dict whose `rope_type` is one of {', '.join(SCALINGS)}. "
            f"Received: scaling={scaling!r}."
        )
    options = {name: option for name, option in scaling.items() if name != "rope_type"}
    fields = dataclasses.fields(cls)
    missing = {field.name for field in fields if field.default is dataclasses.MISSING} - set(options)
    unknown = set(options) - {field.name for field in fields}
    if missing or unknown:
        problem = f"requires {', '.join(sorted(missing))}" if missing else f"has no {', '.join(sorted(unknown))}"
        names = ", ".join(field.name for field in fields)
        raise ValueError(
            f"The scaling {cls.rope_type!r} {problem}; its options are {names}. Received: scaling={scaling!r}."
        )
    for name, option in options.items():
        option_type = str if name == "ramp" else bool if name == "truncate" else numbers.Real
        if not isinstance(option, option_type) and option is not getattr(cls, name, dataclasses.MISSING):
            raise ValueError(
                f"`{name}` of a scaling must be {_OPTION_TYPES[option_type]}. Received: {name}={option!r}."
            )
    return cls(**options)
