"""The examples in the docstrings of the public functions run and print what they say."""

import doctest
import inspect

import keras
import pytest

import zoo
import zoo.inspection

NAMES = [name for name in zoo.inspection.__all__ if inspect.isfunction(getattr(zoo, name))]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the examples show TensorFlow")
@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    tests = doctest.DocTestFinder().find(getattr(zoo, name), name, globs={})
    runner = doctest.DocTestRunner(verbose=False)
    assert all(test.examples and runner.run(test).failed == 0 for test in tests)


def test_sections():
    assert len(NAMES) == 5
    for name in NAMES:
        sections = ("Args:", "Returns:", "Raises:", "Example:")
        assert all(f"    {section}\n" in getattr(zoo, name).__doc__ for section in sections), name
