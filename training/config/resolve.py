"""Resolves a request to one checked run, from defaults, recipe, file, `--set` and the run to resume."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from training.config.initial_run import check_inherited, inherited_settings
from training.config.options import DataConfig, TrainingConfig
from training.config.recipes import recipe
from training.config.resume import ACCEPT_CHANGED_DATA, resume
from training.config.run_config import RunConfig, data_spec, flat_options, read_model_options
from training.config.settings import AUTOMATIC, SECTIONS, Settings, parse_settings
from training.config.vocabularies import suggested, with_files
from training.data import Dataset
from training.data.formats.prepared import fixed_settings
from training.loop.checkpoint_files import last_step
from training.optimization.losses import get_loss
from zoo.errors import InputError
from zoo.options import read_values
from zoo.registry import ModelSpec, get_spec
from zoo.workdir import WorkDir

_MODEL_OPTIONS_FROM_DATA = {"language_model": ("max_length",)}
_DERIVED = tuple(name for name, option in DataConfig.declared().items() if option.derived)


@dataclass(frozen=True)
class TrainingRequest:
    """The settings that a user requests; others come from the run to resume, the recipe, the data or the machine."""

    model: str | None = None
    data: str | None = None
    settings: Sequence[str] = ()  # `section.key=value` settings, of `--set`
    # Settings from a file, as `read_settings` returns them; `settings` override them.
    file: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: dict.fromkeys(SECTIONS, {}))

    def requested(self, spec: ModelSpec) -> Settings:
        """Returns the requested settings, checked and converted to their types.

        Raises:
            InputError: For an unknown name or a wrong value.
        """
        texts = parse_settings(self.settings)
        for key in _DERIVED:
            if key in texts["data"]:
                value = texts["data"][key]
                raise InputError(f"data.{key} comes from the data and cannot be set. Received: data.{key}={value}.")
        # A file may be the `config.json` of a run, whose derived settings do not apply.
        model = {key: value for key, value in self.file["model"].items() if key not in ("name", *spec.required)}
        from_file = dict(self.file["data"])
        if texts["data"].get("tokenizer") not in (None, from_file.get("tokenizer")):
            from_file.pop("tokenizer_sha256", None)  # of another file
        data = {key: value for key, value in {**from_file, **texts["data"]}.items() if key not in _DERIVED}
        data.pop("spec", None)
        training = {**self.file["training"], **texts["training"]}
        return {
            "model": read_model_options(
                spec, {**flat_options(spec, model), **flat_options(spec, texts["model"])}, tuple(spec.config)
            ),
            "data": read_values(DataConfig.declared(), data, "data"),
            "training": read_values(TrainingConfig.declared(), training, "training"),
        }

    def names(self) -> tuple[str | None, str | None]:
        """Returns the name of the model and the data SPEC, `None` for those that are not requested.

        Raises:
            InputError: If two different data SPECs are requested.
        """
        spec = parse_settings(self.settings)["data"].get("spec")
        if self.data is not None and spec not in (None, self.data):
            raise InputError(f"--data {self.data} and data.spec={spec} are different data. Leave out one of them.")
        return first(self.model, self.file["model"].get("name")), first(self.data, spec, data_spec(self.file["data"]))


@dataclass(frozen=True)
class TrainingRun:
    """One run, resolved and checked."""

    config: RunConfig  # settings that depend on the data are completed by `training.loop.prepare`
    data: Dataset[Any] | None = None  # the data, if they have been opened
    begun: bool = False  # whether its work directory already contains it
    # The settings that a resumed run changes, as `section.key`.
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accepts_changed_data(self) -> bool:
        """Whether a resumed run accepts data that changed since it was begun."""
        return ACCEPT_CHANGED_DATA in self.changes


def first(*values: str | None) -> str | None:
    """Returns the first value that is not `None`."""
    return next((value for value in values if value is not None), None)


def resolve(
    model: str, data: str, settings: Sequence[str] = (), file: Mapping[str, Mapping[str, Any]] | None = None
) -> RunConfig:
    """Returns the configuration of a new run: defaults, then the recipe, then the file, then the settings.

    A run that starts from another one (`training.init_from`) uses its tokenizers, and its model options instead of the
    recipe's. `model.name` and `data.spec` of the file are ignored.

    Raises:
        InputError: For an unknown name, a wrong value, or incompatible settings.
    """
    request = TrainingRequest(model, data, settings, file or dict.fromkeys(SECTIONS, {}))
    request.names()
    spec = get_spec(model)
    requested = request.requested(spec)
    chosen = recipe(model, data, requested["model"])
    chosen["data"] = suggested(chosen["data"], requested["data"])
    if initial := requested["training"].get("init_from"):
        inherited = inherited_settings(initial, spec)
        check_inherited(initial, inherited, requested)
        chosen |= inherited
    fixed = _settings_of_shards(data, requested)
    from_data = dict.fromkeys([*spec.required, *_MODEL_OPTIONS_FROM_DATA.get(spec.task, ())])
    config = RunConfig(
        spec,
        {**spec.config, **from_data, **chosen["model"], **requested["model"]},
        DataConfig(spec=data, **{**chosen["data"], **requested["data"], **fixed}),
        TrainingConfig(**{**chosen["training"], **requested["training"]}),
    )
    get_loss(config.training.loss)
    return config


def check_vacant(workdir: WorkDir) -> None:
    """Raises InputError if a work directory already contains a run."""
    if workdir.config.exists():
        raise InputError(
            f"{workdir.path} already contains a run; add --resume to resume it, or choose another --workdir."
        )


def _settings_of_shards(data: str, requested: Settings) -> dict[str, Any]:
    """Returns the settings that token shards were made with; raises InputError if others are requested."""
    fixed = fixed_settings(data)
    for key, value in fixed.items():
        setting = requested["data"].get(key, value)
        if setting != value and setting not in AUTOMATIC:
            raise InputError(
                f"{data} was prepared with data.{key}={value}. Received: data.{key}={setting}. Leave it out, or "
                "prepare the data with it."
            )
    return fixed


def resolve_run(workdir: WorkDir, request: TrainingRequest, resuming: bool) -> TrainingRun:
    """Returns the requested run: that of the work directory, if resuming, or a new one.

    The request must contain model and data unless the work directory contains a run. A resumed run keeps the
    configuration that it was begun with, except for requested settings that may change; see `training.config.resume`.

    Raises:
        InputError: For an unknown name, a wrong value, also in the work directory, incompatible settings, or a change
            of a setting that cannot change.
    """
    model, data = request.names()
    if resuming and not workdir.config.exists():
        raise InputError(f"{workdir.path} contains no run to resume. Leave out --resume to begin one.")
    if not resuming:
        config = resolve(str(model), str(data), request.settings, request.file)
        check_vacant(workdir)
        opened = config.open_data()
        if not config.training.init_from and opened.shards is None:  # these would provide the tokenizers
            config = dataclasses.replace(config, data=with_files(config.data, opened.task))
        return TrainingRun(config, opened)
    saved = RunConfig.of_workdir(workdir)
    name, spec = first(model, saved.spec.name), first(data, saved.data.spec)
    if (name, spec) != (saved.spec.name, saved.data.spec):
        raise InputError(
            f"{workdir.path} contains a run of {saved.spec.name} on {saved.data.spec}. Received: {name} on {spec}."
        )
    requested = request.requested(saved.spec)
    config, changes = resume(saved, requested, last_step(workdir.checkpoints), str(workdir.path))
    get_loss(config.training.loss)
    return TrainingRun(config, begun=True, changes=changes)
