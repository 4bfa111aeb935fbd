"""Parses settings: `--set section.key=value`, and files in TOML, YAML or JSON."""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import InputError, unknown_name

SECTIONS = ("model", "data", "training")

AUTOMATIC = ("auto", None)
"""Values of settings that are chosen by the data or the machine."""

Settings = dict[str, dict[str, Any]]
"""Settings by section and key."""


def parse_settings(settings: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns `{section: {key: text}}` from `section.key=text` settings.

    Raises:
        InputError: For a setting of another form or in an unknown section.
    """
    sections: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot and key):
            raise InputError(f"--set takes SECTION.KEY=VALUE, such as training.max_steps=1000. Received: {setting!r}.")
        if section not in sections:
            raise unknown_name("section of settings", section, sections)
        sections[section][key] = text
    return sections


def read_settings(path: str | Path) -> Settings:
    """Returns the settings in a file of `--config` in TOML, YAML or JSON, by section.

    The file has the sections `model`, `data` and `training`, each of which may be missing, and may have `model.name`
    and `data.spec`. The `config.json` of a work directory is such a file; if that run's settings were changed later,
    the last ones are returned, with a note on standard error.

    Raises:
        InputError: If it cannot be read, or has another form.
    """
    path = Path(path)
    values = _parse(path)
    if not isinstance(values, Mapping):
        raise InputError(f"{path}: a configuration has the sections {', '.join(SECTIONS)}. Received: {values!r}.")
    sections: Settings = {section: {} for section in SECTIONS}
    for section, settings in values.items():
        if section == "changes":
            _note_changes(path, settings)
            continue
        if section not in SECTIONS:
            raise InputError(f"{path}: {unknown_name('section of settings', section, SECTIONS)}")
        if not isinstance(settings, Mapping):
            raise InputError(f"{path}: the section {section} must contain settings by name. Received: {settings!r}.")
        sections[section].update({str(key): value for key, value in settings.items()})
    for section, key in (("model", "name"), ("data", "spec")):
        if not isinstance(value := sections[section].get(key, ""), str):
            raise InputError(f"{path}: {section}.{key} must be a string. Received: {value!r}.")
    return sections


def _note_changes(path: Path, changes: Any) -> None:
    """Writes a note to standard error if a run's settings were changed, since its first ones are not repeated."""
    changes = [change for change in changes if isinstance(change, dict)] if isinstance(changes, list) else []
    if steps := ", ".join(str(change.get("step")) for change in changes):
        print(
            f"{path}: this run's settings were changed after step {steps}; the last ones now apply from the first step",
            file=sys.stderr,
        )


def _parse(path: Path) -> Any:
    parsers: dict[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".yaml": _load_yaml,
        ".yml": _load_yaml,
        ".json": lambda text: json.loads(text, object_pairs_hook=_once),
    }
    if path.suffix not in parsers:
        raise InputError(f"{path}: the name of a configuration must end in {', '.join(parsers)}.")
    try:
        values = parsers[path.suffix](path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:  # invalid UTF-8 as well
        raise InputError(f"{path}: {error}.") from error
    except RecursionError:
        raise InputError(f"{path}: nested too deeply; settings are in sections.") from None
    return {} if values is None else values


def _load_yaml(text: str) -> Any:
    import yaml  # here, so that the command can name the extra that installs it

    class Loader(yaml.SafeLoader):
        """Rejects duplicate keys, of which YAML would take the last."""

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            _once([(key.value, None) for key, _ in node.value if isinstance(key.value, str) and key.value != "<<"])
            return node

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a section of a file; raises ValueError for duplicate keys."""
    ((twice, times),) = Counter(key for key, _ in pairs).most_common(1) or [("", 0)]
    if times > 1:
        raise ValueError(f"the key {twice!r} occurs {times} times in a section; leave one")
    return dict(pairs)
