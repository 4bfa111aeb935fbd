"""Tiny trained work directories and their exports, shared by the tests of training, zoo and export.

They know little, but what they answer depends on the text. Two translate: one is recurrent, reads characters and was
trained in bfloat16; the other is a Transformer with subwords. One classifies words, one goes on with characters.
Nothing may write into them: copy first.
"""

import fcntl
import gc
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import made_once, memory, processor_time
from support.browser import chromium
from support.tiny_runs import (
    CLASSIFIER,
    LANGUAGE_MODEL,
    RECURRENT,
    TRANSFORMER,
    train,
    write_labelled,
    write_lines,
    write_text,
)

from zoo.runtime.startup import collect_rarely

# Two processes share the cores, and operations on a few numbers gain nothing from more threads.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
collect_rarely()  # else it takes a seventh of the time


def pytest_configure(config: pytest.Config) -> None:
    """Runs the fast tests without oneDNN, which prepares and keeps kernels for each of their thousands of shapes.

    The longer tiers use it, as TensorFlow does by default on most processors.
    """
    if config.option.markexpr not in ("nightly", "weekly"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a fast test that takes too much processor time; JAX, which compiles for seconds, may."""
    longer = {"nightly", "weekly"} & {mark.name for mark in item.iter_markers()}
    with processor_time.limited(None if longer or os.environ.get("KERAS_BACKEND") == "jax" else item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[object]:
    """Gives memory back after the last test of a file."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        memory.give_back()
    return result


def pytest_collection_finish() -> None:
    """Keeps what has been imported out of all later garbage collections."""
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draws the same weights in every run: a bound that holds today holds tomorrow.

    Keras takes its seeds from here. That of TensorFlow is left alone: setting it drops what its operations hold.
    """
    random.seed(0)


@pytest.fixture
def new_garbage_alone() -> Iterator[None]:
    """Keeps garbage collection to what the test made.

    Keras collects for each matrix that it quantises, which takes seconds late in a run: 22 s in place of 172 for some
    forty layers even at its beginning.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def shared(request, tmp_path_factory) -> Iterator[Callable[[str, Callable[[Path], object]], Path]]:
    """Yields a function that has a folder made, once for all processes and runs, and returns its path.

    What was made stays in pytest's cache until a source file changes on which it may depend.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # Below it each process has a folder of its own.
    roots = [root / "shared"]
    if (cache := getattr(request.config, "cache", None)) is not None:
        roots.insert(0, made_once.folder_for_these_sources(cache.mkdir("shared")))

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder = (roots[-1] if made_once.may_differ(name, roots[0]) else roots[0]) / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # A process that ends lets go of it.
            if not made_once.is_whole(folder):
                shutil.rmtree(folder, ignore_errors=True)
                make(folder)
                made_once.close(folder)
        used.add(folder)
        return folder

    used: set[Path] = set()
    yield once
    assert all(map(made_once.is_whole, used)), "a test wrote into a folder that others share; it must copy it first"


@pytest.fixture(scope="session")
def trained(shared) -> Callable[..., Path]:
    """Returns a function that has a model trained, once, and returns its work directory."""

    def once(name: str, model: str, spec: str, *settings: str) -> Path:
        def make(workdir):
            assert train(model, spec, workdir, "--set", *settings) == 0

        return shared(f"runs/{name}", make)

    return once


@pytest.fixture(scope="session")
def text_spec(shared) -> str:
    """The SPEC of a small parallel text."""
    return f"text:{shared('text', write_text)}:en-de"


@pytest.fixture(scope="session")
def text_workdir(trained, text_spec) -> Path:
    """The work directory of a Transformer with subwords, trained in float32."""
    return trained("text", "transformer_tiny", text_spec, *TRANSFORMER)


@pytest.fixture(scope="session")
def dates_workdir(trained) -> Path:
    """The work directory of a recurrent model with characters, trained in bfloat16."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.data.formats.dates.SIZES", {"train": 4000, "val": 200, "test": 200})
        return trained("dates", "rnnsearch", "dates", *RECURRENT)


@pytest.fixture(scope="session")
def labelled_spec(shared) -> str:
    """The SPEC of small labelled text."""
    return f"tsv:{shared('labelled', write_labelled)}"


@pytest.fixture(scope="session")
def labelled_workdir(trained, labelled_spec) -> Path:
    """The work directory of a self-attention classifier with words."""
    return trained("labelled", "self_attention_classifier", labelled_spec, *CLASSIFIER, "data.tokenizer=words")


@pytest.fixture(scope="session")
def lines_spec(shared) -> str:
    """The SPEC of a small running text."""
    return f"lines:{shared('lines', write_lines)}"


@pytest.fixture(scope="session")
def lines_workdir(trained, lines_spec) -> Path:
    """The work directory of a causal Transformer with characters."""
    return trained("lines", "causal_lm_tiny", lines_spec, *LANGUAGE_MODEL, "data.tokenizer=chars")


@pytest.fixture(scope="session")
def labelled_run(labelled_workdir):
    """The classifier, loaded."""
    import zoo

    return zoo.load(labelled_workdir)


@pytest.fixture(scope="session")
def lines_run(lines_workdir):
    """The language model, loaded."""
    import zoo

    return zoo.load(lines_workdir)


@pytest.fixture(scope="session")
def text_run(text_workdir):
    """The Transformer, loaded; shared because each decoding is compiled once."""
    import zoo

    return zoo.load(text_workdir)


@pytest.fixture(scope="session")
def dates_run(dates_workdir):
    """The recurrent model, loaded."""
    import zoo

    return zoo.load(dates_workdir)


@pytest.fixture(scope="session")
def exported(shared) -> Callable[..., Path]:
    """Returns a function that has a work directory exported, once, and returns the base path, which has version 1."""

    def once(workdir: Path, **options: str) -> Path:
        from export.saved_model import export_saved_model

        return shared(f"exports/{workdir.name}", lambda base: export_saved_model(workdir, base, **options))

    return once


@pytest.fixture(scope="session")
def text_export(exported, text_workdir) -> Path:
    """The base path of the exported Transformer."""
    return exported(text_workdir)


@pytest.fixture(scope="session")
def dates_export(exported, dates_workdir) -> Path:
    """The base path of the exported recurrent model."""
    return exported(dates_workdir)


@pytest.fixture(scope="session")
def labelled_export(exported, labelled_workdir) -> Path:
    """The base path of the exported classifier."""
    return exported(labelled_workdir)


@pytest.fixture(scope="session")
def lines_export(exported, lines_workdir) -> Path:
    """The base path of the exported language model, of which servers warm up all signatures."""
    return exported(lines_workdir, warmup="all")


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a screen; skips where there is none."""
    with chromium() as started:
        yield started
