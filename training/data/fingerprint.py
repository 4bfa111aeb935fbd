"""A fingerprint of the examples of a run, by which a resumed run detects changed data.

It is computed from the examples in memory, or from the checksums of token shards, and saved as `data.json` in the work
directory.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from training.data.dataset import Dataset, Labelled, Split
from training.data.shards.store import MissingTexts
from zoo.errors import InputError
from zoo.workdir import WorkDir

USED = ("train", "val")
"""The splits that training depends on."""

Fingerprint = Mapping[str, Mapping[str, Any]]
"""By split: the number of examples, a hash of each column, and the labels if there are any."""

_LINES_AT_A_TIME = 4096


def fingerprint(data: Dataset[Any]) -> Fingerprint:
    """Returns the fingerprint of a dataset; takes a second for a million pairs."""
    return {name: _of_split(data.split(name)) for name in USED}


def identify(split: Split) -> str:
    """Returns a hash of a split's fingerprint."""
    return hashlib.sha256(json.dumps(_of_split(split)).encode()).hexdigest()[:32]


def save_fingerprint(workdir: WorkDir, data: Dataset[Any]) -> None:
    """Writes the fingerprint of a run's data into its work directory."""
    workdir.write_text(workdir.data, json.dumps(fingerprint(data), indent=2, ensure_ascii=False) + "\n")


def check_unchanged(workdir: WorkDir, data: Dataset[Any], accept: bool) -> None:
    """Raises InputError if the data of a run have changed since it was begun.

    The fingerprint is written if it is missing, in runs of earlier versions.

    Args:
        workdir: The work directory of the run.
        data: Its current data.
        accept: Whether to accept changes; the fingerprint is then replaced by that of the new data.

    Raises:
        InputError: If the data have changed, or the fingerprint is damaged; the message contains the difference.
    """
    if workdir.data.is_file() and not accept:
        if changes := _differences(_read(workdir), fingerprint(data)):
            raise InputError(
                f"The data {data.spec} have changed since the run in {workdir.path} was begun: {'; '.join(changes)}. "
                "Restore them, or resume with the changed data: --set data.changed=accept"
            )
    else:
        save_fingerprint(workdir, data)


def _of_split(split: Split) -> dict[str, Any]:
    columns = {column.name: getattr(split, column.name) for column in dataclasses.fields(split)}
    hashes = {name: _hash(values) for name, values in columns.items()}
    labels = {"classes": sorted(set(split.labels))} if isinstance(split, Labelled) else {}
    return {"examples": len(split), **labels, "hashes": hashes}


def _hash(texts: Sequence[str]) -> str:
    if isinstance(texts, MissingTexts):
        return texts.identity
    state = hashlib.blake2b(digest_size=16)
    for start in range(0, len(texts), _LINES_AT_A_TIME):
        state.update(("\n".join(texts[start : start + _LINES_AT_A_TIME]) + "\n").encode())
    return state.hexdigest()


def _read(workdir: WorkDir) -> Fingerprint:
    try:
        saved: Fingerprint = json.loads(workdir.data.read_text(encoding="utf-8"))
        if all({"examples", "hashes"} <= saved[name].keys() for name in USED):
            return saved
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise InputError(
        f"{workdir.data} is damaged. If the data have not changed since the run was begun, resume with --set "
        "data.changed=accept"
    )


def _differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Returns a description of the changes of each split."""
    changes = {name: _difference(before[name], now[name]) for name in USED if before[name] != now[name]}
    return [f"{name} {change}" for name, change in changes.items()]


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    parts = []
    if before["examples"] != now["examples"]:
        examples = f"{before['examples']:,} example{'s' * (before['examples'] != 1)}"
        parts.append(f"had {examples} and now has {now['examples']:,}")
    for verb, labels in (("lost", _missing(before, now)), ("gained", _missing(now, before))):
        if labels:
            parts.append(f"{verb} the label{'s' * (len(labels) > 1)} {', '.join(map(repr, labels[:5]))}")
    columns = [name for name, value in now["hashes"].items() if before["hashes"].get(name) != value]
    if not parts:
        parts.append(f"has as many examples, of which the {' and '.join(columns)} changed")
    return " and ".join(parts)


def _missing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the labels of `before` that `now` lacks."""
    return sorted(set(before.get("classes", ())) - set(now.get("classes", ())))
