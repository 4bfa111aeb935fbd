"""The examples in the docstrings run and print what they say."""

import doctest
import io

import keras
import pytest
from support.every import every

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


@pytest.mark.nightly
def test_examples_run_and_sections_are_there():
    with every() as failures:
        for name in zoo.layers.__all__:
            finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner(verbose=False)
            report, examples = io.StringIO(), 0
            for test in finder.find(getattr(zoo.layers, name), name, globs={}):
                examples += len(test.examples)
                runner.run(test, out=report.write)
            with failures.of(name):
                assert examples and runner.failures == 0, report.getvalue() or "it has no example"
    with every() as failures:
        for name in zoo.layers.__all__:
            subject = getattr(zoo.layers, name)
            sections = ["Example:", "Returns:" if name in WITHOUT_PAPER else "Reference:"]
            with failures.of(name):
                assert all(section in subject.__doc__ for section in sections)
                if isinstance(subject, type) and issubclass(subject, keras.layers.Layer):
                    assert subject.__doc__.splitlines()[0].endswith((".", "`.", ":", "`:"))
