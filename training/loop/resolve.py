"""From what a user asks for to one run, resolved and checked: defaults, recipe, file, `--set`, and the run so far."""

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
from training.loop.lock import check_vacant
from training.optimization.losses import get_loss
from zoo.errors import InputError
from zoo.options import read_values
from zoo.registry import ModelSpec, get_spec
from zoo.workdir import WorkDir

_MODEL_OPTIONS_FROM_DATA = {"language_model": ("max_length",)}
_DERIVED = tuple(name for name, option in DataConfig.declared().items() if option.derived)


@dataclass(frozen=True)
class TrainingRequest:
    """What is asked of a run by name; what is missing is left to the run so far, recipe, data or machine."""

    model: str | None = None
    data: str | None = None
    settings: Sequence[str] = ()  # `section.key=value` settings, of `--set`
    # Settings from a file, as `read_settings` returns them; `settings` override them.
    file: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: dict.fromkeys(SECTIONS, {}))

    def requested(self, spec: ModelSpec) -> Settings:
        """Returns the settings that are asked for, checked and in their types.

        Raises:
            InputError: For an unknown name or a wrong value.
        """
        texts = parse_settings(self.settings)
        for key in _DERIVED:
            if key in texts["data"]:
                value = texts["data"][key]
                raise InputError(f"data.{key} is found in the data and cannot be set. Received: data.{key}={value}.")
        # A file may be the `config.json` of a run, whose data decide anew.
        model = {key: value for key, value in self.file["model"].items() if key not in ("name", *spec.required)}
        filed = dict(self.file["data"])
        if texts["data"].get("tokenizer") not in (None, filed.get("tokenizer")):
            filed.pop("tokenizer_sha256", None)  # that of another file
        data = {key: value for key, value in {**filed, **texts["data"]}.items() if key not in _DERIVED}
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
        """Returns the name of the model and the data SPEC, `None` where they are not asked for.

        Raises:
            InputError: If two different data are named.
        """
        spec = parse_settings(self.settings)["data"].get("spec")
        if self.data is not None and spec not in (None, self.data):
            raise InputError(f"--data {self.data} and data.spec={spec} name different data; one of them suffices.")
        return first(self.model, self.file["model"].get("name")), first(self.data, spec, data_spec(self.file["data"]))


@dataclass(frozen=True)
class TrainingRun:
    """One run, resolved and checked."""

    config: RunConfig  # what comes from the data is completed by `training.loop.prepare`
    data: Dataset[Any] | None = None  # the data, if they have been opened
    begun: bool = False  # whether its work directory holds it already
    # The settings that a resumed run changes now, as `section.key`.
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accepts_changed_data(self) -> bool:
        """Whether a resumed run goes on with other data than it was begun with."""
        return ACCEPT_CHANGED_DATA in self.changes


def first(*values: str | None) -> str | None:
    """Returns the first value that is not `None`."""
    return next((value for value in values if value is not None), None)


def resolve(
    model: str, data: str, settings: Sequence[str] = (), file: Mapping[str, Mapping[str, Any]] | None = None
) -> RunConfig:
    """Returns the configuration of a new run: defaults, then the recipe, then the file, then the settings.

    A run that begins from another one (`training.init_from`) has the options of that one's model in place of the
    recipe's, and its tokenizers. In the file, `model.name` and `data.spec` do not count.

    Raises:
        InputError: For an unknown name, a wrong value, or settings that do not go together.
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
    fixed = _fixed(data, requested)
    from_data = dict.fromkeys([*spec.required, *_MODEL_OPTIONS_FROM_DATA.get(spec.task, ())])
    config = RunConfig(
        spec,
        {**spec.config, **from_data, **chosen["model"], **requested["model"]},
        DataConfig(spec=data, **{**chosen["data"], **requested["data"], **fixed}),
        TrainingConfig(**{**chosen["training"], **requested["training"]}),
    )
    get_loss(config.training.loss)
    return config


def _fixed(data: str, requested: Settings) -> dict[str, Any]:
    """Returns the settings that token shards were made with; raises InputError if others are asked for."""
    fixed = fixed_settings(data)
    for key, value in fixed.items():
        asked = requested["data"].get(key, value)
        if asked != value and asked not in AUTOMATIC:
            raise InputError(
                f"{data} was prepared with data.{key}={value}. Received: data.{key}={asked}. Prepare the data so, or "
                "leave it out."
            )
    return fixed


def resolve_run(workdir: WorkDir, request: TrainingRequest, resuming: bool) -> TrainingRun:
    """Returns the run that is asked for: the one that the work directory holds, if resuming, or a new one.

    The request names model and data unless the work directory holds a run. A resumed run keeps the configuration that
    it was begun with, but for settings that are asked for by name and may change; see `training.config.resume`.

    Raises:
        InputError: For an unknown name, a wrong value, also in the work directory, settings that do not go together,
            or a change of what cannot change.
    """
    model, data = request.names()
    if resuming and not workdir.config.exists():
        raise InputError(f"{workdir.path} holds no run to go on with. Leave out --resume to begin one.")
    if not resuming:
        config = resolve(str(model), str(data), request.settings, request.file)
        check_vacant(workdir)
        opened = config.open_data()
        if not config.training.init_from and opened.shards is None:  # else their tokenizers are there already
            config = dataclasses.replace(config, data=with_files(config.data, opened.task))
        return TrainingRun(config, opened)
    kept = RunConfig.of_workdir(workdir)
    name, spec = first(model, kept.spec.name), first(data, kept.data.spec)
    if (name, spec) != (kept.spec.name, kept.data.spec):
        raise InputError(
            f"{workdir.path} holds a run of {kept.spec.name} on {kept.data.spec}. Received: {name} on {spec}."
        )
    requested = request.requested(kept.spec)
    config, changes = resume(kept, requested, last_step(workdir.checkpoints), str(workdir.path))
    get_loss(config.training.loss)
    return TrainingRun(config, begun=True, changes=changes)
