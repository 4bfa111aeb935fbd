"""The settings in `--help`, from their declarations."""

import dataclasses
import shutil
import textwrap
from collections.abc import Iterator, Mapping

from training.config.options import DataConfig, TrainingConfig
from zoo.options import Option
from zoo.registry import ModelSpec, get_spec


def describe(model: str | None = None) -> str:
    """Returns all settings with their types, defaults and meaning, including the options of `model`.

    Raises:
        InputError: If there is no such model.
    """
    title = (
        "settings, as SECTION.KEY=VALUE of --set or by section in a --config (the recipe for a model and data changes "
        "some of these defaults; DIR/config.json contains the values of a run):"
    )
    entries = [*_section("data", DataConfig.declared()), *_section("training", TrainingConfig.declared())]
    if model is None:
        return "\n".join([_wrapped(title, ""), *entries, "\n--model NAME --help lists the options of a model."])
    spec = get_spec(model)
    summary = f"\n{_wrapped(f'{spec.name}: {spec.summary}', '')}"
    return "\n".join([_wrapped(title, ""), *entries, summary, *_of_model(spec)])


def _of_model(spec: ModelSpec) -> Iterator[str]:
    """Yields the options of a model, by group."""
    groups = spec.options.groups() if spec.options else {}
    long_names = {name: long for long, name in spec.options.by_group().items()} if spec.options else {}
    declared = spec.declared()
    for group in sorted({groups.get(name, "") for name in declared}):
        members = {name: option for name, option in declared.items() if groups.get(name, "") == group}
        if group:
            example = long_names[next(iter(members))]
            yield f"\n {group.replace('_', '-')}, also in a section model.{group} of --config, such as model.{example}:"
        yield from _section("model", members)


def _section(name: str, declared: Mapping[str, Option]) -> Iterator[str]:
    for key, option in declared.items():
        if not option.derived:
            yield f"  {name}.{key}  ({option.type_name}; {_default(option)})\n{_wrapped(option.meaning, ' ' * 6)}"


def _default(option: Option) -> str:
    if option.default is dataclasses.MISSING:
        return "required"
    if option.default is None:
        return "automatic"
    value = str(option.default).lower() if option.kind is bool else option.default or repr(option.default)
    return f"default: {value}"


def _wrapped(text: str, indent: str) -> str:
    width = min(shutil.get_terminal_size().columns, 120)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
