"""The settings in `--help`, from the docstrings of the classes that hold them."""

import dataclasses
import importlib
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator

import docstring_parser

from training.config.run_config import FOUND, DataConfig, TrainingConfig
from zoo.registry import get_spec
from zoo.startup import start_backend

_KINDS = {int: "integer", float: "number", bool: "true or false", str: "text"}
_REFERENCE = re.compile(r"`(zoo(?:\.\w+)+)`")
_SEE = re.compile(r"See `(\w+)`\.")


def describe(model: str | None = None) -> str:
    """Returns all settings with their types, defaults and meaning.

    Args:
        model: Name of a model whose options are described, too.

    Raises:
        InputError: If there is no such model.
    """
    parts = [
        "settings, as SECTION.KEY=VALUE of --set or by section in a --config (the recipe for a model and data changes "
        "some of these defaults; DIR/config.json has what was used):"
    ]
    for section, cls in (("data", DataConfig), ("training", TrainingConfig)):
        texts = _arguments(cls)
        fields = [field for field in dataclasses.fields(cls) if field.name not in FOUND]
        parts += [_entry(f"{section}.{f.name}", _kind(f.type), f.default, texts[f.name]) for f in fields]
    if model is None:
        return "\n".join([_wrapped(parts[0], ""), *parts[1:], "\n--model NAME --help tells the options of a model."])
    return "\n".join([_wrapped(parts[0], ""), *parts[1:], *_options(model)])


def _options(model: str) -> Iterator[str]:
    """Yields the description of a model and of each of its options."""
    spec = get_spec(model)
    start_backend()
    texts = _arguments(spec.load_class())
    yield f"\n{_wrapped(f'{spec.name}: {spec.summary}', '')}"
    for key, default in spec.config.items():
        yield _entry(f"model.{key}", _KINDS[type(default)], default, texts.get(key, ""))


def _arguments(cls: type) -> dict[str, str]:
    """Returns what the docstrings of a class, its bases, and what they refer to say of each argument."""
    found: dict[str, str] = {}
    for base in cls.__mro__:
        if not (base.__module__ or "").startswith(("zoo.", "training.")) or "__doc__" not in vars(base):
            continue
        docstring = base.__doc__ or ""
        texts = {param.arg_name: " ".join((param.description or "").split()) for param in _params(docstring)}
        for name in _REFERENCE.findall(docstring):
            module, _, member = name.rpartition(".")
            other = getattr(importlib.import_module(module), member, None)
            if isinstance(other, type):
                texts = {**_arguments(other), **texts}
        for key, text in texts.items():
            # "See `Base`." is told by the base.
            if key not in found or _SEE.fullmatch(found[key]):
                found[key] = text
    return found


def _params(docstring):
    return docstring_parser.parse(docstring, docstring_parser.DocstringStyle.GOOGLE).params


def _kind(annotation) -> str:
    """Returns a type as the user of a command thinks of it."""
    if annotation in _KINDS:
        return _KINDS[annotation]
    members = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(members)
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return _kind(members[0])
    return f"list of {_kind(members[0])}"


def _entry(name: str, kind: str, default, text: str) -> str:
    if default is dataclasses.MISSING:
        default = "required"
    elif default is None:
        default = "automatic"
    else:
        default = f"default: {str(default).lower() if isinstance(default, bool) else default or repr(default)}"
    return f"  {name}  ({kind}; {default})\n{_wrapped(text, ' ' * 6)}"


def _wrapped(text: str, indent: str) -> str:
    width = min(shutil.get_terminal_size().columns, 120)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
