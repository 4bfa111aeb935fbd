"""The examples in the docstrings run and print what they say."""

import doctest
import io

import keras
import pytest

import zoo.layers

# They say what they return; their subclasses, or what they return, name the papers.
WITHOUT_PAPER = {
    "BaseAttention",
    "Normalization",
    "Positions",
    "Score",
    "VisibilityRule",
    "get_normalization",
    "get_score",
}


@pytest.mark.parametrize("name", zoo.layers.__all__)
def test_examples(name):
    subject = getattr(zoo.layers, name)
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner(verbose=False)
    report, examples = io.StringIO(), 0
    for test in finder.find(subject, name, globs={}):
        examples += len(test.examples)
        runner.run(test, out=report.write)
    assert runner.failures == 0, report.getvalue()
    assert examples, f"{name} has no example."


@pytest.mark.parametrize("name", zoo.layers.__all__)
def test_sections(name):
    subject = getattr(zoo.layers, name)
    sections = ["Example:", "Returns:" if name in WITHOUT_PAPER else "Reference:"]
    assert all(section in subject.__doc__ for section in sections)
    assert (
        not isinstance(subject, type)
        or not issubclass(subject, keras.layers.Layer)
        or subject.__doc__.splitlines()[0].endswith((".", "`.", ":", "`:"))
    )
