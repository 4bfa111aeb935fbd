"""The complete configuration of a run: plain dataclasses, resolved from defaults, a recipe and `--set`."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pydantic

from training.recipes import recipe
from zoo.errors import InputError, unknown_name
from zoo.registry import get_spec, resolve_config


@dataclasses.dataclass
class DataConfig:
    """What is trained on.

    Args:
        spec: Data SPEC, such as `dates` or `text:DIR:SRC-TGT`.
        tokenizer: `"auto"` takes what suits the data: characters for `dates`, subwords for text.
        vocab_size: Largest size of each subword vocabulary; characters are all kept.
        shared_vocabulary: One vocabulary for both sides; `None` takes what suits the data.
        lowercase: Whether all text is read and written in lower case.
        max_length: Largest number of symbols of a training sentence on either side, the end included; longer ones are
            cut there, and training says how many.
    """

    spec: str
    tokenizer: Literal["auto", "subword", "chars"] = "auto"
    vocab_size: int = 6000
    shared_vocabulary: bool | None = None
    lowercase: bool = False
    max_length: int = 100


@dataclasses.dataclass
class TrainingConfig:
    """How it is trained.

    Args:
        max_steps: Number of optimizer steps; rounded up to whole rounds of `eval_every` steps.
        eval_every: Steps in a round: after each there is a validation, a line in `metrics.jsonl` and a checkpoint.
        batch_tokens: Largest number of symbols in a batch, padding included, counted on the longer side.
        learning_rate: Peak learning rate of Adam.
        schedule: `"inverse_sqrt"` rises linearly for `warmup_steps`, then falls with 1/√step; `"constant"` rises and
            stays.
        warmup_steps: Steps until the peak.
        cooldown: Share of the steps, the last ones, over which the rate falls linearly to zero, in [0, 1).
        label_smoothing: Share of the target distribution spread over the vocabulary, in [0, 1).
        clip_norm: Largest global norm of the gradient; 0 for no clipping.
        average_checkpoints: How many of the last checkpoints the final weights are the mean of.
        patience: Rounds without a better validation loss before training stops; 0 for never.
        precision: `"auto"` computes in bfloat16 where the machine is fast at it, else in float32.
        jit: Whether XLA compiles the step; `"auto"` for JAX only.
        seed: Seed of initial weights, dropout and the order of the data.
    """

    max_steps: int = 8000
    eval_every: int = 250
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    schedule: Literal["inverse_sqrt", "constant"] = "constant"
    warmup_steps: int = 500
    cooldown: float = 0.0
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    average_checkpoints: int = 5
    patience: int = 10
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto"
    jit: Literal["auto", "on", "off"] = "auto"
    seed: int = 1


@dataclasses.dataclass
class Config:
    """A run: data, model options (with the model's `name`) and training."""

    model: dict[str, Any]
    data: DataConfig
    training: TrainingConfig

    def to_json(self) -> str:
        """Returns the configuration as JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Config":
        """Returns the configuration that `to_json` wrote.

        Args:
            values: The parsed JSON.

        Raises:
            InputError: For an unknown or missing setting, or a wrong type.
        """
        return cls(
            dict(values["model"]),
            _typed(DataConfig, values.get("data", {}), "data"),
            _typed(TrainingConfig, values.get("training", {}), "training"),
        )


def _typed(cls, values: Mapping[str, Any], section: str):
    """Returns an instance of a dataclass from values that may be strings, checked against its annotations."""
    known = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in known:
            raise unknown_name("setting", f"{section}.{key}", [f"{section}.{name}" for name in known])
    try:
        return pydantic.TypeAdapter(cls).validate_python(dict(values))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"Setting {section}.{key}: {first['msg']}. Received: {first['input']!r}.") from None


def parse_settings(settings: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns `{section: {key: text}}` from `section.key=text` settings.

    Args:
        settings: The arguments of `--set`.

    Raises:
        InputError: For a setting of another form or in an unknown section.
    """
    sections: dict[str, dict[str, str]] = {"model": {}, "data": {}, "training": {}}
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot and key):
            raise InputError(f"--set takes SECTION.KEY=VALUE, such as training.max_steps=1000. Received: {setting!r}.")
        if section not in sections:
            raise unknown_name("section of settings", section, sections)
        sections[section][key] = text
    return sections


def _model_options(name: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Returns the options given for a model, in the types of their defaults."""
    defaults = get_spec(name).config
    options = {}
    for key, text in texts.items():
        if key not in defaults:
            raise unknown_name(f"option of model {name}", key, defaults)
        try:
            options[key] = pydantic.TypeAdapter(type(defaults[key])).validate_python(text)
        except pydantic.ValidationError as error:
            raise InputError(f"Setting model.{key}: {error.errors()[0]['msg']}. Received: {text!r}.") from None
    return options


def resolve(model: str, spec: str, settings: Sequence[str] = ()) -> Config:
    """Returns the complete configuration of a run: defaults, then the recipe, then the settings.

    Args:
        model: Name of the model.
        spec: Data SPEC.
        settings: `section.key=value` settings.

    Raises:
        InputError: For an unknown name, a wrong type or a value out of range.
    """
    get_spec(model)
    sections = parse_settings(settings)
    suggested = recipe(model, spec)
    # The vocabularies' sizes are not known before the tokenizers are.
    required = dict.fromkeys(get_spec(model).required)
    options = resolve_config(model, {**required, **suggested["model"], **_model_options(model, sections["model"])})
    config = Config(
        {"name": model, **options},
        _typed(DataConfig, {"spec": spec, **suggested["data"], **sections["data"]}, "data"),
        _typed(TrainingConfig, {**suggested["training"], **sections["training"]}, "training"),
    )
    _check_ranges(config)
    return config


_ZERO_ALLOWED = {"clip_norm", "patience", "warmup_steps", "seed"}
_SHARES = {"label_smoothing", "dropout", "cooldown"}


def _check_ranges(config: Config) -> None:
    for section, values in dataclasses.asdict(config).items():
        for key, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                _check_range(f"{section}.{key}", key, value)


def _check_range(setting: str, key: str, value: float) -> None:
    if key in _SHARES:
        expected, good = "in [0, 1)", 0 <= value < 1
    elif key in _ZERO_ALLOWED:
        expected, good = "0 or more", 0 <= value < math.inf
    else:
        expected, good = "positive", 0 < value < math.inf
    if not good:
        raise InputError(f"Setting {setting} must be {expected}. Received: {value}.")
