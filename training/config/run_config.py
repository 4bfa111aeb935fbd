"""The complete configuration of a run, saved as `config.json`."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from training.config.class_weights import EQUAL, parse_class_weights
from training.config.mesh import num_devices, parse_mesh
from training.config.options import DataConfig, TrainingConfig
from training.data import Dataset, load_data
from zoo.errors import InputError, unknown_name
from zoo.options import Option, read_values
from zoo.registry import ModelSpec, get_spec
from zoo.workdir import WorkDir

_SIZE_FROM_DATA = Option(None, int, minimum=1, automatic=True)


@dataclass(frozen=True)
class RunConfig:
    """The settings of a run: its model, data and training.

    Raises:
        InputError: For incompatible settings.
    """

    spec: ModelSpec
    model: Mapping[str, Any]  # options of the model; those that depend on the data are `None` until the data are read
    data: DataConfig
    training: TrainingConfig
    changes: tuple[Mapping[str, Any], ...] = ()  # by resumed runs: a step, and the settings changed after it

    def __post_init__(self) -> None:
        capacity, window = self.model.get("max_length"), self.data.max_length + 1
        if self.spec.task == "language_model" and capacity is not None and capacity < window:
            raise InputError(
                f"data.max_length={self.data.max_length} tokens and the start token do not fit into "
                f"model.max_length={capacity}. Lower data.max_length, or do not set model.max_length."
            )
        if self.training.mesh:
            mesh = parse_mesh(self.training.mesh)
            if self.training.devices not in (0, num_devices(mesh)):
                raise InputError(
                    f"training.mesh={self.training.mesh} takes {num_devices(mesh)} devices. Received: "
                    f"training.devices={self.training.devices}. Do not set training.devices."
                )
        parse_class_weights(self.training.class_weights)
        if self.training.class_weights != EQUAL and self.spec.task != "classifier":
            raise InputError(
                f"training.class_weights is for classifiers; {self.spec.name} is a {self.spec.task} model. "
                f"Received: training.class_weights={self.training.class_weights}."
            )
        if self.training.lora_rank and not self.training.init_from:
            raise InputError(
                f"training.lora_rank={self.training.lora_rank} requires a trained model: pass --init_from DIR."
            )

    def open_data(self) -> Dataset[Any]:
        """Opens the data of the run; see the function `open_data`."""
        return open_data(self.spec, self.data.spec, self.data.max_examples)

    def with_model(self, **options: Any) -> Self:
        """Returns the configuration with other options of the model."""
        return dataclasses.replace(self, model={**self.model, **options})

    def to_dict(self) -> dict[str, Any]:
        """Returns the configuration as nested dictionaries."""
        return {
            "model": {"name": self.spec.name, **self.model},
            "data": self.data.to_dict(),
            "training": self.training.to_dict(),
            "changes": [dict(change) for change in self.changes],
        }

    def to_json(self) -> str:
        """Returns the configuration as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the configuration from the result of `to_dict`; options that were added since have their defaults.

        Raises:
            InputError: For an unknown or missing setting, or a wrong value.
        """
        model, data, training = (values.get(section, {}) for section in ("model", "data", "training"))
        for section, settings in (("model", model), ("data", data), ("training", training)):
            if not isinstance(settings, Mapping):
                raise InputError(f"The section {section} must contain settings by name. Received: {settings!r}.")
        spec = get_spec(model["name"])
        if "spec" not in data:
            raise InputError("data.spec is missing.")
        data = {**data, "spec": data_spec(data)}
        options = {name: value for name, value in model.items() if name != "name"}
        return cls(
            spec,
            {**spec.config, **read_model_options(spec, options, (*spec.config, *spec.required))},
            DataConfig.read(data, "data"),
            TrainingConfig.read(training, "training"),
            tuple(values.get("changes", ())),
        )

    @classmethod
    def of_workdir(cls, workdir: WorkDir) -> Self:
        """Returns the configuration in a work directory.

        Raises:
            InputError: If it is missing or invalid; the message contains the file's path.
        """
        values = workdir.read_config()
        try:
            return cls.from_dict(values)
        except InputError as error:
            raise InputError(f"{workdir.config}: {error}") from None


def data_spec(data: Mapping[str, Any]) -> Any:
    """Returns the SPEC in the data section of a configuration, if there is one, by its current name.

    The `senses` data of runs from before they had parts are now `senses:twins`.
    """
    begun_without_parts = data.get("classes") and "parts" not in data
    return "senses:twins" if begun_without_parts and data.get("spec") == "senses" else data.get("spec")


def _long_names(spec: ModelSpec) -> dict[str, str]:
    return spec.options.by_group() if spec.options else {}


def flat_options(spec: ModelSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of a model by their flat names; `values` may contain `GROUP.NAME`, or a section for a group.

    Raises:
        InputError: If an option is set twice, by two of its names.
    """
    names = _long_names(spec)
    groups = {name.partition(".")[0] for name in names}
    flat: dict[str, Any] = {}
    for name, value in values.items():
        is_section = isinstance(value, Mapping) and name in groups
        for long, inner in (
            [(f"{name}.{key}", inner) for key, inner in value.items()] if is_section else [(name, value)]
        ):
            option = names.get(long, long)
            if option in flat:
                raise InputError(
                    f"The option {option} of model {spec.name} is set twice. Received: model.{long} again."
                )
            flat[option] = inner
    return flat


def read_model_options(spec: ModelSpec, values: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Returns options of a model in the types of their declarations; texts are parsed.

    Raises:
        InputError: For an unknown name (close names are suggested), or a wrong value.
    """
    for name in values:
        if name not in known:
            names = (*known, *(long for long, short in _long_names(spec).items() if short in known))
            raise unknown_name(f"option of model {spec.name}", name, names)
    return read_values(dict.fromkeys(spec.required, _SIZE_FROM_DATA) | spec.declared(), values, "model")


def open_data(spec: ModelSpec, data: str, max_examples: int = 0) -> Dataset[Any]:
    """Opens data for a model; raises InputError if they cannot be opened, or are for another task."""

    def check_task(task: str) -> None:
        if task != spec.task:
            raise InputError(f"{spec.name} is a {spec.task} model; {data} is {task} data.")

    return load_data(data, max_examples=max_examples, check_task=check_task)
