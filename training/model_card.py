"""The model card: what a work directory holds, for whoever finds it."""

import importlib.metadata
import math
import platform
import shlex
from typing import Any

import keras

from training.config.origin import is_free
from training.config.run_config import FOUND, Config, resolve
from training.config.settings import AUTOMATIC, SECTIONS
from training.data import Dataset
from training.loop.callbacks import RunState
from training.tasks import Task
from training.tasks.task import Tokenizers
from zoo.registry import get_spec
from zoo.workdir import WorkDir

_USES = {
    "seq2seq": "turning text into text as the data do",
    "classifier": "sorting texts like those of the data into their classes",
    "language_model": "going on with text like that of the data, and telling how probable such text is",
}

_EVALUATION = "\n\n## Evaluation\n\n"
_SMALLER = "\n\n## With smaller weights\n\n"
_OPTIONS = (
    "beam_size",
    "length_penalty",
    "coverage_penalty",
    "no_repeat_ngram",
    "max_length",
    "temperature",
    "top_k",
    "top_p",
    "seed",
)


def model_card(
    config: Config,
    data: Dataset,
    task: Task,
    tokenizers: Tokenizers,
    model: keras.Model,
    state: RunState,
    metrics: dict[str, float],
) -> str:
    """Returns the model card of a finished run as Markdown.

    Args:
        config: The complete configuration.
        data: The data.
        task: The task.
        tokenizers: The tokenizers.
        model: The trained model.
        state: The run's state.
        metrics: Validation metrics of the final weights.
    """
    spec = get_spec(config.model["name"])
    # Corrections to matrices are merged into them in what is kept.
    kept = sum(math.prod(variable.shape) for variable in model.weights if not variable.name.startswith("lora_"))
    sizes = ", ".join(f"{len(data.split(split)):,} {split}" for split in ("train", "val"))
    vocabularies = " and ".join(f"{size:,}" for key, size in config.model.items() if key.endswith("vocab_size"))
    classes = f"- Classes: {', '.join(config.data.classes)}\n" if config.data.classes else ""
    others = ", ".join(f"{name} {metrics[name]:.4f}" for name in sorted(metrics.keys() - {"cross_entropy", "loss"}))
    each = "text" if task.name == "classifier" else "symbol"
    return f"""# {spec.name} on {config.data.spec}

{spec.summary}

- Paper: [{spec.paper.title}]({spec.paper.url}) ({spec.paper.year})
- Parameters: {kept:,}
- Data: `{config.data.spec}`, {sizes} {task.unit}; tokenizer: {config.data.tokenizer}, {vocabularies} symbols
{classes}- Validation cross-entropy: {metrics["cross_entropy"]:.4f} nats per {each}; {others}
- Intended use: {_USES[task.name]}; study and comparison of architectures
- Limits: it knows what its training data show, along with what is wrong or one-sided in them; nothing but what
  stands here was measured; longer texts than the {config.data.max_length} symbols that training
  shows are untried
- Licence: Apache-2.0 for the code; for what was learned, as the data's

## Training

{_training(config, model, state)}

```
{command(config, data, task, tokenizers)}
```

{_changes(config)}Made with {_environment()}.
"""


def note_evaluation(workdir: WorkDir, metrics: dict[str, Any]) -> None:
    """Writes the metrics of a split to the model card, in place of what it said of the same measurement.

    Args:
        workdir: The work directory.
        metrics: The metrics, and what they were measured with.
    """
    key = f"- {_measurement(metrics['data'], metrics)}: "
    _note(workdir, _EVALUATION, key, [f"{name} {metrics[name]:.4f}" for name in _measured(metrics)])


def note_weights(workdir: WorkDir, spec: str, rounded: dict[str, Any], whole: dict[str, Any]) -> None:
    """Writes to the model card what smaller weights change, in place of what it said of the same measurement.

    Args:
        workdir: The work directory.
        spec: The data.
        rounded: Metrics with smaller weights, and what they were measured with.
        whole: Metrics with the weights of training.
    """
    changes = [
        f"{name} {whole[name]:.4f} → {rounded[name]:.4f} ({rounded[name] - whole[name]:+.4f})"
        for name in _measured(rounded)
    ]
    _note(workdir, _SMALLER, f"- {rounded['weights']}, {_measurement(spec, rounded)}: ", changes)


def _measurement(spec, metrics):
    options = [f"{name} {metrics[name]}" for name in _OPTIONS if name in metrics]
    return ", ".join([f"`{metrics['split']}` of `{spec}`", *options])


def _measured(metrics):
    """Returns the names of what was measured, but for the time it took."""
    return [k for k, v in metrics.items() if isinstance(v, float) and k not in (*_OPTIONS, "decoding_seconds")]


def _note(workdir, title, key, values):
    """Writes a line into a section of the model card, in place of the one with the same key."""
    card = workdir.model_card.read_text(encoding="utf-8") if workdir.model_card.is_file() else ""
    before, _, rest = card.partition(title)
    section, other, after = rest.partition("\n\n## ")
    kept = [line for line in section.splitlines() if line and not line.startswith(key)]
    text = "\n".join([*kept, key + ", ".join(values)])
    workdir.write_text(workdir.model_card, f"{before.rstrip()}{title}{text}{other}{after.rstrip()}\n")


def _training(config, model, state):
    settings = config.training
    batch = (
        f"{settings.batch_tokens:,}"
        if settings.accumulate_steps == 1
        else (f"{settings.accumulate_steps} × {settings.batch_tokens:,}")
    )
    weights = "the moving averages of the weights" if settings.ema else "the weights"
    return (
        f"{state.rounds * settings.eval_every:,} steps of at most {batch} symbols in {state.seconds / 60:.1f} minutes; "
        f"{model.dtype_policy.name}. Kept is the mean of {weights} over the last {settings.average_checkpoints} "
        "checkpoints, or the best checkpoint where it validates better. The complete configuration is `config.json`."
    )


def _changes(config):
    """Returns what the command does not tell: settings that were changed on the way."""
    lines = [
        f"Behind step {change['step']:,} it went on with "
        + ", ".join(f"{key}={value}" for key, value in change.items() if key != "step")
        + "; the command has the last settings.\n\n"
        for change in config.changes
    ]
    return "".join(lines)


def command(config: Config, data: Dataset, task: Task, tokenizers: Tokenizers) -> str:
    """Returns the command that trains with a configuration. It reads nothing of a run that this one began from.

    Args:
        config: The configuration of a run, completed from its data.
        data: The data.
        task: The task.
        tokenizers: The tokenizers.
    """
    name, spec = config.model["name"], config.data.spec
    settings = _behind_origin(config) if config.training.init_from else _asked_for(config, data, task, tokenizers)
    words = ["python", "-m", "training.train", "--model", name, "--data", spec, "--workdir", "DIR"]
    return shlex.join([*words, *(["--set", *settings] if settings else [])])


def _asked_for(config, data, task, tokenizers):
    """Returns the settings without which a run would not have this configuration."""
    name, spec = config.model["name"], config.data.spec
    usual = resolve(name, spec).to_dict()
    settings = [
        f"{section}.{key}={value}"
        for section, key, value in _differences(config, usual)
        if section == "training" or usual[section][key] not in AUTOMATIC
    ]
    # What data decide hangs on the settings so far, and is a setting where they decide otherwise.
    while True:
        again = resolve(name, spec, settings)
        task.settle(again.data, data)
        task.complete(again, data, tokenizers)
        missing = [f"{section}.{key}={value}" for section, key, value in _differences(config, again.to_dict())]
        missing = [setting for setting in missing if setting not in settings]
        if not missing:
            return settings
        settings.append(missing[0])


def _behind_origin(config):
    """Returns the settings of a run that began from another one, which may be gone: what it did not have to keep."""
    usual = resolve(config.model["name"], config.data.spec).to_dict()
    return [
        f"{section}.{key}={value}"
        for section, key, value in _options(config)
        # What the other one would pass on is told in any case.
        if is_free(section, key) and (section == "model" or key == "max_length" or value != usual[section][key])
    ]


def _options(config):
    """Yields section, key and value of all that can be asked for: the rest follows from the data."""
    told = {"data": ("spec", *FOUND), "model": ("name", *get_spec(config.model["name"]).required), "training": ()}
    found = config.to_dict()
    for section in SECTIONS:
        for key, value in found[section].items():
            if key not in told[section] and value is not None:
                yield section, key, value


def _differences(config, usual):
    """Returns the settings that are not the usual ones."""
    return [option for option in _options(config) if option[2] != usual[option[0]][option[1]]]


def _environment():
    """Returns the versions that a result can hang on."""
    packages = ("keras", keras.backend.backend(), "numpy", "sentencepiece")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return ", ".join([f"Python {platform.python_version()}", *versions])
