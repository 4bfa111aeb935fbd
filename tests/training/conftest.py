"""A run that the tests of training share; nothing may write into it: copy first."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiny_runs import CONVOLUTIONS


@pytest.fixture(scope="session")
def small_run(trained, labelled_spec) -> Path:
    """The work directory of a classifier with dropout, moving averages and two batches in a step, 3 rounds of 3."""
    return trained("small", "cnn_classifier", labelled_spec, *CONVOLUTIONS)


@pytest.fixture
def copied(tmp_path) -> Callable[..., Path]:
    """Returns a function that copies a work directory to where it may be written into, without some of its files."""

    def copy(workdir: Path, *without: str) -> Path:
        target = tmp_path / "copies" / workdir.name
        return shutil.copytree(workdir, target, ignore=shutil.ignore_patterns("tb", *without))

    return copy
