"""The examples in the docstrings of the public functions run and print what they say."""

import doctest
import inspect

import keras
import pytest
from support.every import every

import zoo
import zoo.inspection

NAMES = [name for name in zoo.inspection.__all__ if inspect.isfunction(getattr(zoo, name))]


@pytest.mark.nightly
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the examples show TensorFlow")
def test_examples():
    assert len(NAMES) == 8
    with every() as failures:
        for name in NAMES:
            with failures.of(name):
                tests = doctest.DocTestFinder().find(getattr(zoo, name), name, globs={})
                runner = doctest.DocTestRunner(verbose=False)
                assert all(test.examples and runner.run(test).failed == 0 for test in tests)
                sections = ("Args:", "Returns:", "Raises:", "Example:")
                assert all(f"    {section}\n" in getattr(zoo, name).__doc__ for section in sections)
