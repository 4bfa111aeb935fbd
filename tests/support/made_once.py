"""Where trained models and exports are kept from one run of the tests to the next."""

import hashlib
import os
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("zoo", "training", "export", "tests/conftest.py", "tests/support/tiny_runs.py", "requirements.txt")
DAY = 24 * 3600


def folder_for_these_sources(cache: Path) -> Path:
    """Returns the folder for what is made from the sources as they are, and removes those unused for a day."""
    variables = [os.environ.get(name) for name in ("KERAS_BACKEND", "TF_ENABLE_ONEDNN_OPTS")]
    digest = hashlib.sha256(f"{sys.version} {variables}".encode())
    for source in SOURCES:
        for path in [ROOT / source] if (ROOT / source).is_file() else sorted((ROOT / source).rglob("*")):
            if path.is_file() and path.suffix not in (".md", ".pyc"):
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    folder = cache / digest.hexdigest()[:16]
    for other in cache.iterdir():
        if other != folder and time.time() - other.stat().st_mtime > DAY:
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    os.utime(folder)
    return folder


def _listing(folder: Path) -> str:
    return "\n".join(f"{path.relative_to(folder)} {path.stat().st_size}" for path in sorted(folder.rglob("*")))


def close(folder: Path) -> None:
    """Notes that a folder has all that it should have, and what that is."""
    folder.with_suffix(".made").write_text(_listing(folder), encoding="utf-8")


def is_whole(folder: Path) -> bool:
    """Returns whether a folder has been made, and nobody has added to it or taken from it."""
    made = folder.with_suffix(".made")
    return made.exists() and made.read_text(encoding="utf-8") == _listing(folder)


def may_differ(name: str, kept: Path) -> bool:
    """Returns whether a folder is to be made anew, outside of the cache: this process has a planted fault.

    What was trained without the fault is good enough, and an export is not, since the fault may be in its graph.
    """
    return "ATTENTION_ZOO_MUTANT" in os.environ and (name.startswith("exports/") or not is_whole(kept / name))
