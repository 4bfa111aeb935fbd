"""Runs docs/introductions.md from top to bottom, for the functions that check its rows."""

import contextlib
import functools
import inspect
import io
import random
import shlex

import keras
import numpy as np
import pytest
from introductions.page import PAGE, parts, rows
from support.every import every

import export.heatmap  # noqa: F401 - what the page imports is kept out of the garbage collections of its run
import zoo.layers  # noqa: F401


class Ran:
    """What a block left behind.

    Args:
        names: All names after it.
        printed: What it printed.
        error: What it raised; `None` if nothing.
    """

    def __init__(self, names, printed, error):
        self.names, self.printed, self.error = names, printed, error


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Returns the folder in which the page is run, where its pictures are."""
    return tmp_path_factory.mktemp("introductions")


@pytest.fixture(scope="session")
def page(pictures):
    """Returns what each part left behind: all of the page in one process and one namespace, with nothing injected."""
    names, ran = {"__name__": "introductions"}, {}
    random.seed(0)  # from which Keras draws weights: what holds today holds tomorrow
    with contextlib.chdir(pictures), pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "load", functools.cache(zoo.load))  # each preset once
        for part in parts():
            if part.language == "python":
                ran[part] = _run(part, names)
    return ran


def _run(part, names):
    printed, error = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(part.code, f"{PAGE.name}, {part.title}", "exec"), names)
        except Exception as raised:
            error = raised
    return Ran(dict(names), printed.getvalue(), error)


@pytest.fixture
def check_rows(request, page):
    """Returns a function that checks all rows for which the test's file has a `row_…`, and tells each that fails.

    Such a function takes some of `names` and `printed`, see `Ran`, of `command_lines`, module and arguments of each
    command, and of fixtures.
    """

    def check():
        functions = {name: each for name, each in vars(request.module).items() if name.startswith("row_")}
        assert functions
        with every() as failures:
            for name, function in functions.items():
                with failures.of(name):
                    function(**_arguments(function, rows()[name.removeprefix("row_")]))

    def _arguments(function, row):
        wanted = inspect.signature(function).parameters
        if row.language == "python":
            assert page[row].error is None, page[row].error
            own = {"names": page[row].names, "printed": page[row].printed}
        else:
            lines = map(shlex.split, row.code.strip().splitlines())
            own = {"command_lines": [(words[2], words[3:]) for words in lines]}
        return {name: own[name] if name in own else request.getfixturevalue(name) for name in wanted}

    return check


def array(*shape, seed=0):
    """Returns random numbers of a shape."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def close(result, expected, tolerance=1e-5):
    np.testing.assert_allclose(numpy(result), expected, atol=tolerance, rtol=1e-4)
