"""Writes the model card: a description of a work directory for readers who do not know it."""

import functools
import importlib.metadata
import math
import platform
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from training.config.initial_run import may_differ
from training.config.options import DataConfig, TrainingConfig
from training.config.resolve import resolve
from training.config.run_config import RunConfig
from training.config.settings import AUTOMATIC, SECTIONS
from training.config.tokenizer_files import tokenizer_files
from training.data.registry import data_format
from training.loop.prepare import PreparedRun, complete
from training.loop.state import RunState
from training.optimization.losses import get_loss
from zoo.workdir import WorkDir

_USES = {
    "seq2seq": "turning text into text as the data do",
    "classifier": "sorting texts like those of the data into their classes",
    "language_model": "continuing text like that of the data, and computing its probability",
}

_EVALUATION = "\n\n## Evaluation\n\n"
_SMALLER = "\n\n## With smaller weights\n\n"
_SHORTLIST = "\n\n## With a shortlist\n\n"
_OPTIONS = (
    "beam_size",
    "rules",
    "length_penalty",
    "coverage_penalty",
    "no_repeat_ngram",
    "max_length",
    "shortlist",
    "ensemble",
    "rerank",
    "with",
    "reverse",
    "reverse_weight",
    "temperature",
    "top_k",
    "top_p",
    "seed",
)


def model_card(run: PreparedRun, model: keras.Model, state: RunState, metrics: dict[str, float]) -> str:
    """Returns the model card of a finished run as Markdown, with the validation metrics of its final weights."""
    config, task = run.config, run.task
    spec, settings = config.spec, config.data
    sizes = ", ".join(f"{len(run.data.split(split)):,} {split}" for split in ("train", "val"))
    vocabularies = " and ".join(f"{size:,}" for key, size in config.model.items() if key.endswith("vocab_size"))
    classes = f"- Classes: {', '.join(settings.classes)}\n" if settings.classes else ""
    others = ", ".join(f"{name} {metrics[name]:.4f}" for name in sorted(metrics.keys() - {"cross_entropy", "loss"}))
    per = "text" if task.name == "classifier" else "token"
    return f"""# {spec.name} on {settings.spec}

{_summary(config, model)}

- Paper: [{spec.paper.title}]({spec.paper.url}) ({spec.paper.year})
- Parameters: {sum(_sizes(model.weights).values()):,}
- Layers: {_layers(model)}
- Data: `{settings.spec}`, {sizes} {task.unit}; tokenizer: {settings.tokenizer}, {vocabularies} tokens
{classes}- Validation cross-entropy: {metrics["cross_entropy"]:.4f} nats per {per}; {others}
- Intended use: {_USES[task.name]}; study and comparison of architectures
- Limits: it reproduces its training data, with their errors and biases; only the metrics reported here were
  measured; it was not tested on texts longer than the {settings.max_length} tokens of training
- Licence: Apache-2.0 for the code; the licence of the data applies to the weights

## Training

{_training(config.training, model, state)}{_class_weights(run)}

```
{command(run)}
```

{_changes(config)}Made with {_environment()}.
"""


def _summary(config: RunConfig, model: keras.Model) -> str:
    """Returns the summary of the named model, or, if options were changed, its class and these options."""
    spec = config.spec
    changed = [
        f"{name}={config.model[name]} (not {default})"
        for name, default in spec.config.items()
        if default not in AUTOMATIC and config.model[name] != default
    ]
    if not changed:
        return spec.summary
    return f"A `{type(model).__name__}`, built like `{spec.name}` except for {', '.join(changed)}."


def _sizes(variables: Sequence[keras.Variable]) -> dict[int, int]:
    """Returns the sizes of variables by their `id`."""
    # Low-rank updates are merged into their matrices in the saved model.
    return {id(variable): math.prod(variable.shape) for variable in variables if not variable.name.startswith("lora_")}


def _layers(model: keras.Model) -> str:
    """Returns the number of layers of each kind and size; shared weights count once."""
    counted: set[int] = set()
    layers: Counter[tuple[str, int]] = Counter()
    for layer in model.layers:
        sizes = _sizes(layer.weights)
        if size := sum(sizes[key] for key in sizes.keys() - counted):
            layers[type(layer).__name__, size] += 1
        counted |= sizes.keys()
    return ", ".join(
        f"{count} × {name} of {size:,} parameters" if count > 1 else f"{name} of {size:,} parameters"
        for (name, size), count in layers.items()
    )


def note_evaluation(workdir: WorkDir, metrics: dict[str, Any]) -> None:
    """Writes the metrics of a split to the model card, replacing an earlier line of the same measurement."""
    key = f"- {_measurement(metrics['data'], metrics)}: "
    _note(workdir, _EVALUATION, key, [f"{name} {metrics[name]:.4f}" for name in _measured(metrics)])


def note_weights(workdir: WorkDir, spec: str, rounded: dict[str, Any], unrounded: dict[str, Any]) -> None:
    """Writes the effect of smaller weights to the model card, replacing an earlier line of the same measurement."""
    changes = [
        f"{name} {unrounded[name]:.4f} → {rounded[name]:.4f} ({rounded[name] - unrounded[name]:+.4f})"
        for name in _measured(rounded)
    ]
    _note(workdir, _SMALLER, f"- {rounded['weights']}, {_measurement(spec, rounded)}: ", changes)


def note_shortlist(workdir: WorkDir, result: Mapping[str, Any]) -> None:
    """Writes the loss of quality by a shortlist, as measured by `training.shortlist`, to the model card."""
    changes = [
        f"{name} {result[f'{name}_of_all']:.4f} → {result[name]:.4f} ({result[name] - result[f'{name}_of_all']:+.4f})"
        for name in _measured(result)
        if f"{name}_of_all" in result
    ]
    key = f"- shortlist {result['shortlist']}, beam_size {result['beam_size']}: "
    where = f"`{result['split']}` of `{result['data']}`: {100 * result['outside']:.2f} % of the tokens outside"
    _note(workdir, _SHORTLIST, key, [where, *changes])


def _measurement(spec: str, metrics: Mapping[str, Any]) -> str:
    options = [f"{name} {metrics[name]}" for name in _OPTIONS if name in metrics]
    return ", ".join([f"`{metrics['split']}` of `{spec}`", *options])


def _measured(metrics: Mapping[str, Any]) -> list[str]:
    """Returns the names of the metrics, except the time of decoding."""
    return [
        name
        for name, value in metrics.items()
        if isinstance(value, float) and name not in (*_OPTIONS, "decoding_seconds")
    ]


def _note(workdir: WorkDir, title: str, key: str, values: list[str]) -> None:
    """Writes a line to a section of the model card, replacing the one with the same key."""
    card = workdir.model_card.read_text(encoding="utf-8") if workdir.model_card.is_file() else ""
    before, _, rest = card.partition(title)
    section, other, after = rest.partition("\n\n## ")
    lines = [line for line in section.splitlines() if line and not line.startswith(key)]
    text = "\n".join([*lines, key + ", ".join(values)])
    workdir.write_text(workdir.model_card, f"{before.rstrip()}{title}{text}{other}{after.rstrip()}\n")


def _training(settings: TrainingConfig, model: keras.Model, state: RunState) -> str:
    batch = f"{settings.batch_tokens:,}"
    if settings.accumulate_steps > 1:
        batch = f"{settings.accumulate_steps} × {batch}"
    weights = "the moving averages of the weights" if settings.ema else "the weights"
    return (
        f"{state.rounds * settings.eval_every:,} steps of at most {batch} tokens in {state.seconds / 60:.1f} minutes; "
        f"{model.dtype_policy.name}. The saved model contains the mean of {weights} over the last "
        f"{settings.average_checkpoints} checkpoints, or those of the best checkpoint if its validation is better. The "
        "complete configuration is `config.json`."
    )


def _class_weights(run: PreparedRun) -> str:
    """Returns a sentence about the class weights; empty if they are equal."""
    if run.class_weights is None:
        return ""
    weights = zip(run.config.data.classes or (), run.class_weights, strict=True)
    listed = ", ".join(f"{name} {weight:.4g}" for name, weight in weights)
    return f" The training loss, but not the validation loss, was weighted by class: {listed}."


def _changes(config: RunConfig) -> str:
    """Returns the settings that resumed runs changed, which are not in the command."""
    return "".join(
        f"After step {change['step']:,} it was resumed with "
        + ", ".join(f"{key}={value}" for key, value in change.items() if key != "step")
        + "; the command has the last settings.\n\n"
        for change in config.changes
    )


def command(run: PreparedRun) -> str:
    """Returns the command that trains with a configuration, without reading the initial run, if there was one."""
    spec, data = run.config.spec, run.config.data.spec
    settings = _settings_of_fine_tuning(run.config) if run.config.training.init_from else _settings(run)
    # Modules of the user, with registered models, data or losses.
    loss = get_loss(run.config.training.loss)
    modules = (spec.model_class.partition(":")[0], data_format(data).load.__module__, loss.__module__)
    imports = dict.fromkeys(module for module in modules if module.partition(".")[0] not in ("zoo", "training"))
    words = ["python", "-m", "training.train", *(word for module in imports for word in ("--import", module))]
    words += ["--model", spec.name, "--data", data, "--workdir", "DIR"]
    return shlex.join([*words, *(["--set", *settings] if settings else [])])


def _settings(run: PreparedRun) -> list[str]:
    """Returns the settings with which a command reproduces the configuration of a run."""
    resolve_again = functools.partial(resolve, run.config.spec.name, run.config.data.spec)
    defaults = resolve_again().to_dict()
    settings = [
        f"{section}.{key}={value}"
        for section, key, value in _differences(run.config, defaults)
        if section == "training"
        or defaults[section][key] not in AUTOMATIC
        # The data never determine a tokenizer file.
        or (key == "tokenizer" and tokenizer_files(value))
    ]
    # Settings derived from the data depend on those in `settings`; each that would differ is added.
    while True:
        completed = complete(resolve_again(settings), run.task, run.data, run.tokenizers).to_dict()
        missing = [f"{section}.{key}={value}" for section, key, value in _differences(run.config, completed)]
        missing = [setting for setting in missing if setting not in settings]
        if not missing:
            return settings
        settings.append(missing[0])


def _settings_of_fine_tuning(config: RunConfig) -> list[str]:
    """Returns the settings in which a run may differ from its initial run, which may no longer exist."""
    defaults = resolve(config.spec.name, config.data.spec).to_dict()
    return [
        f"{section}.{key}={value}"
        for section, key, value in _options(config)
        # Settings that would be inherited are always in the command.
        if may_differ(section, key) and (section == "model" or key == "max_length" or value != defaults[section][key])
    ]


def _options(config: RunConfig) -> Iterator[tuple[str, str, Any]]:
    """Yields section, key and value of all settings except those derived from the data."""
    derived = [name for name, option in DataConfig.declared().items() if option.derived]
    left_out = {"data": ("spec", *derived), "model": ("name", *config.spec.required), "training": ()}
    values = config.to_dict()
    for section in SECTIONS:
        for key, value in values[section].items():
            if key not in left_out[section] and value is not None:
                yield section, key, value


def _differences(config: RunConfig, others: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Returns the settings whose values differ from `others`."""
    return [option for option in _options(config) if option[2] != others[option[0]][option[1]]]


def _environment() -> str:
    """Returns the versions of software that a result may depend on."""
    packages = ("keras", keras.backend.backend(), "numpy", "sentencepiece")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return ", ".join([f"Python {platform.python_version()}", *versions])
