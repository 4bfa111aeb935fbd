"""The complete configuration of a run: plain dataclasses, resolved from defaults, a recipe, a file and `--set`."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import pydantic

from training.config.origin import base_of, check_origin
from training.config.recipes import recipe
from training.config.settings import SECTIONS, Given, parse_settings
from zoo.errors import InputError, unknown_name
from zoo.registry import get_spec, resolve_config


@dataclasses.dataclass
class DataConfig:
    """What is trained on.

    Args:
        spec: Data SPEC, such as `dates` or `text:DIR:SRC-TGT`.
        tokenizer: `"auto"` takes what suits the data: characters for `dates`, subwords for text.
        vocab_size: Largest size of each vocabulary of subwords or words; characters are all kept.
        shared_vocabulary: One vocabulary for both sides of a pair; `None` takes what suits the data.
        lowercase: Whether all text is read and written in lower case.
        max_length: Largest number of symbols of a training example on either side, the end included; longer ones are
            cut there, and training says how many. For a running text: the number of symbols that a window shows.
        max_examples: Training examples of a `tfds:` dataset that are read, the first ones, those held out for
            validation among them; 0 for all. Whatever is read is kept in memory, for `lm1b` as a whole tens of GB.
        classes: The labels, which are found in the data.
    """

    spec: str
    tokenizer: Literal["auto", "subword", "words", "chars"] = "auto"
    vocab_size: int = 6000
    shared_vocabulary: bool | None = None
    lowercase: bool = False
    max_length: int = 100
    max_examples: int = 0
    classes: list[str] | None = None


FOUND = ("classes",)
"""What of `DataConfig` is found in the data and cannot be asked for."""


@dataclasses.dataclass
class TrainingConfig:
    """How it is trained.

    Args:
        max_steps: Number of optimizer steps; rounded up to whole rounds of `eval_every` steps.
        eval_every: Steps in a round: after each there is a validation, a line in `metrics.jsonl` and a checkpoint.
        batch_tokens: Largest number of symbols in a batch, padding included, counted on the longer side.
        accumulate_steps: Batches whose gradients are averaged for one step, each with the same weight; a step then
            sees as many symbols as with so many times the `batch_tokens`, in the memory of one batch.
        learning_rate: Peak learning rate of Adam.
        schedule: `"constant"` rises linearly for `warmup_steps` and stays; `"inverse_sqrt"` falls behind the rise with
            1/√step; `"cosine"` falls along half a cosine to `final_rate` at the last step.
        warmup_steps: Steps until the peak.
        final_rate: Share of the peak that `"cosine"` ends at, in [0, 1).
        cooldown: Share of the steps, the last ones, over which the rate falls linearly to zero, in [0, 1).
        beta_2: Adam's decay of the mean square of the gradient.
        weight_decay: What each step takes off the weights, as a share of them and times the learning rate (AdamW);
            biases and gains of normalisations are left alone; 0 for none.
        label_smoothing: Share of the target distribution spread over the vocabulary, in [0, 1).
        clip_norm: Largest global norm of the gradient; 0 for no clipping.
        ema: Momentum of an exponential moving average of the weights, such as 0.999, in [0, 1). Where it is not 0,
            the average is what is validated and kept, while training goes on from the weights themselves.
        average_checkpoints: How many of the last checkpoints the final weights are the mean of.
        patience: Rounds without a better validation loss before training stops; 0 for never.
        precision: `"auto"` computes in bfloat16 where the machine is fast at it, else in float32.
        jit: Whether XLA compiles the step; `"auto"` for JAX only.
        devices: Local devices that each batch is spread over; 0 for all GPUs there are, or the processor.
        cores: Parts of each batch that cores of the processor compute side by side, under TensorFlow without a GPU; 0
            for as many as there are cores, but none below 512 symbols. 1 leaves the cores to TensorFlow.
        init_from: Work directory, or `preset:NAME`, to begin from, with its tokenizers, the options of its model and
            its weights; a classifier of other classes gets a new last layer. None if empty.
        lora_rank: Train corrections of this rank to the matrices of `init_from`, those of dense layers, convolutions
            and embeddings, and nothing else but the last layer of a classifier; biases, normalisations and tables of
            positions stay as they are, and recurrent models are refused. It is below the sides of each matrix. The
            model that is kept is an ordinary one. 0 trains all weights.
        seed: Seed of initial weights, dropout and the order of the data.
    """

    max_steps: int = 8000
    eval_every: int = 250
    batch_tokens: int = 4096
    accumulate_steps: int = 1
    learning_rate: float = 1e-3
    schedule: Literal["constant", "inverse_sqrt", "cosine"] = "constant"
    warmup_steps: int = 500
    final_rate: float = 0.0
    cooldown: float = 0.0
    beta_2: float = 0.98
    weight_decay: float = 0.0
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    ema: float = 0.0
    average_checkpoints: int = 5
    patience: int = 10
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto"
    jit: Literal["auto", "on", "off"] = "auto"
    devices: int = 0
    cores: int = 0
    init_from: str = ""
    lora_rank: int = 0
    seed: int = 1


@dataclasses.dataclass
class Config:
    """A run: data, model options (with the model's `name`) and training.

    Args:
        model: Options of the model.
        data: What is trained on.
        training: How it is trained.
        changes: What a resumed run changed: a step, and the settings from there on.
        given: What was asked for by name, section by section, in the types of the settings; this is not saved.
    """

    model: dict[str, Any]
    data: DataConfig
    training: TrainingConfig
    changes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    given: Given = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def check_data(self, task: str) -> None:
        """Checks that the data are for the model's task.

        Args:
            task: The task of the data.

        Raises:
            InputError: If they are not.
        """
        check_task(self.model["name"], self.data.spec, task)

    def to_dict(self) -> dict[str, Any]:
        """Returns the configuration as nested dictionaries."""
        values = dataclasses.asdict(self)
        del values["given"]
        return values

    def to_json(self) -> str:
        """Returns the configuration as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

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
            list(values.get("changes", [])),
        )


def check_task(model: str, spec: str, task: str) -> None:
    """Checks that data are for a model's task.

    Args:
        model: Name of the model.
        spec: Data SPEC.
        task: The task of the data.

    Raises:
        InputError: If they are not.
    """
    if task != (expected := get_spec(model).task):
        raise InputError(f"{model} is a {expected} model; {spec} is {task} data.")


def _plain(setting: str, value: Any, annotation: Any) -> Any:
    """Returns a value as `--set` would give it: YAML reads on, off, yes and no as booleans."""
    if not isinstance(value, bool):
        return value
    if annotation in (int, float):
        raise InputError(f"Setting {setting} is a number. Received: {value}.")
    return ("off", "on")[value] if "on" in get_args(annotation) else value


def _typed(cls, values: Mapping[str, Any], section: str):
    """Returns an instance of a dataclass from values that may be strings, checked against its annotations."""
    known = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in known:
            raise unknown_name("setting", f"{section}.{key}", [f"{section}.{name}" for name in known])
    annotations = {field.name: field.type for field in dataclasses.fields(cls)}
    try:
        return pydantic.TypeAdapter(cls).validate_python(
            {key: _plain(f"{section}.{key}", value, annotations[key]) for key, value in values.items()}
        )
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"Setting {section}.{key}: {first['msg']}. Received: {first['input']!r}.") from None


def _model_options(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options given for a model, in the types of their defaults."""
    defaults = get_spec(name).config
    options = {}
    for key, value in values.items():
        if key not in defaults:
            raise unknown_name(f"option of model {name}", key, defaults)
        kind = type(defaults[key])
        try:
            options[key] = pydantic.TypeAdapter(kind).validate_python(_plain(f"model.{key}", value, kind))
        except pydantic.ValidationError as error:
            raise InputError(f"Setting model.{key}: {error.errors()[0]['msg']}. Received: {value!r}.") from None
    return options


_FOUND_IN_DATA = {"language_model": ("max_length",)}


def _together(model: str, values: Mapping[str, Any], texts: Mapping[str, Any]) -> Given:
    """Returns what a file and `--set` say, the latter above the former, without what the data are asked for."""
    of_model = {key: value for key, value in values["model"].items() if key not in ("name", *get_spec(model).required)}
    of_data = {key: value for key, value in values["data"].items() if key not in ("spec", *FOUND)}
    return {
        "model": _model_options(model, {**of_model, **texts["model"]}),
        "data": {**of_data, **texts["data"]},
        "training": {**values["training"], **texts["training"]},
    }


def resolve(
    model: str,
    spec: str,
    settings: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
    begun: bool = False,
) -> Config:
    """Returns the complete configuration of a run: defaults, then the recipe, then the file, then the settings.

    A run that begins from another one (`training.init_from`) has the options of that one's model in place of the
    recipe's, and its tokenizers.

    Args:
        model: Name of the model.
        spec: Data SPEC.
        settings: `section.key=value` settings.
        values: Settings from a file, as `read_settings` returns them; its `model.name` and `data.spec` do not count.
        begun: Whether this is asked of a run that has an origin of its own, if any.

    Raises:
        InputError: For an unknown name, a wrong type or a value out of range.
    """
    get_spec(model)
    texts = parse_settings(settings)
    _check_asked(spec, texts["data"])
    given = _together(model, values or dict.fromkeys(SECTIONS, {}), texts)
    base = recipe(model, spec)
    if origin := given["training"].get("init_from"):
        base = base_of(origin, model, base)
    # The sizes of vocabularies and the like are not known before the data are.
    required = dict.fromkeys([*get_spec(model).required, *_FOUND_IN_DATA.get(get_spec(model).task, ())])
    options = resolve_config(model, {**required, **base["model"], **given["model"]})
    config = Config(
        {"name": model, **options},
        _typed(DataConfig, {"spec": spec, **base["data"], **given["data"]}, "data"),
        _typed(TrainingConfig, {**base["training"], **given["training"]}, "training"),
    )
    _check_ranges(config)
    _check_lengths(config)
    found = config.to_dict()
    config.given = {section: {key: found[section][key] for key in given[section]} for section in SECTIONS}
    if origin:
        check_origin(origin, base, config.given)
    if config.training.lora_rank and not (origin or begun):
        raise InputError("training.lora_rank corrects the weights of a trained model: name it with --init_from DIR.")
    return config


def _check_asked(spec: str, texts: Mapping[str, str]) -> None:
    if (other := texts.get("spec", spec)) != spec:
        raise InputError(f"--data {spec} and data.spec={other} name different data; one of them suffices.")
    for key in FOUND:
        if key in texts:
            raise InputError(f"data.{key} is found in the data and cannot be set. Received: data.{key}={texts[key]}.")


def _check_lengths(config: Config) -> None:
    room, shown = config.model.get("max_length"), config.data.max_length + 1
    if get_spec(config.model["name"]).task == "language_model" and room is not None and room < shown:
        raise InputError(
            f"data.max_length={config.data.max_length} symbols and the start symbol do not fit into "
            f"model.max_length={room}. Lower the former, or leave the latter to the data."
        )


_ZERO_ALLOWED = {
    "readout_units",  # Models without such an option of 0 refuse it themselves.
    "num_key_value_heads",
    "clip_norm",
    "patience",
    "warmup_steps",
    "seed",
    "weight_decay",
    "devices",
    "cores",
    "lora_rank",
    "max_examples",
}
_SHARES = {"label_smoothing", "cooldown", "final_rate", "ema", "beta_2"}


def _check_ranges(config: Config) -> None:
    # An option of a model that is 0 by default may be 0.
    zero = _ZERO_ALLOWED | {key for key, value in get_spec(config.model["name"]).config.items() if value == 0}
    for section in SECTIONS:
        for key, value in config.to_dict()[section].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                _check_range(f"{section}.{key}", key, value, key in zero)


def _check_range(setting: str, key: str, value: float, zero_allowed: bool) -> None:
    if key in _SHARES or key.endswith("dropout"):
        expected, good = "in [0, 1)", 0 <= value < 1
    elif zero_allowed:
        expected, good = "0 or more", 0 <= value < math.inf
    else:
        expected, good = "positive", 0 < value < math.inf
    if not good:
        raise InputError(f"Setting {setting} must be {expected}. Received: {value}.")
