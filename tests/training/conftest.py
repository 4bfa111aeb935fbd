"""What the tests of training share; nothing may write into it: copy first."""

import contextlib
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiny_runs import CONVOLUTIONS, run_quietly


@pytest.fixture(scope="session")
def small_run(trained, labelled_spec) -> Path:
    """The work directory of a classifier with dropout, moving averages and two batches in a step, 3 rounds of 3."""
    return trained("small", "cnn_classifier", labelled_spec, *CONVOLUTIONS)


@pytest.fixture(scope="session")
def evaluated(text_workdir, tmp_path_factory) -> tuple[Path, str]:
    """A copy of a work directory, evaluated on its validation split and by length; and what was printed."""
    from training.evaluate import main

    target = tmp_path_factory.mktemp("evaluated") / "run"
    workdir = shutil.copytree(text_workdir, target, ignore=shutil.ignore_patterns("tb", "checkpoints"))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run_quietly(main, workdir, "--split", "val", "--by", "length") == 0
    return workdir, printed.getvalue()


@pytest.fixture
def copied(tmp_path) -> Callable[..., Path]:
    """Returns a function that copies a work directory to where it may be written into, without some of its files."""

    def copy(workdir: Path, *without: str) -> Path:
        target = tmp_path / "copies" / workdir.name
        return shutil.copytree(workdir, target, ignore=shutil.ignore_patterns("tb", *without))

    return copy
