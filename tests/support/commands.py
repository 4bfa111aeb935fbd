"""What the commands of this project make of their arguments, without running."""

import argparse
import importlib

import pytest


class Parsed(BaseException):
    """Stops a command once its arguments are parsed."""


def parse(module, arguments):
    """Returns the arguments of a command as it reads them."""
    parse_known_args = argparse.ArgumentParser.parse_known_args

    def stop(self, *arguments):
        raise Parsed(*parse_known_args(self, *arguments))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Parsed) as caught:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
        try:
            _main_of(module)(arguments)
        except SystemExit as usage:
            pytest.fail(f"python -m {module} takes no {arguments}: {usage}")
    namespace, unknown = caught.value.args
    of_a_runner = getattr(namespace, "runner", None)  # Beam's, which takes what a command does not know
    assert not unknown or of_a_runner, f"python -m {module} has no {unknown}"
    return namespace


def _main_of(module):
    found = importlib.import_module(module)
    return getattr(found, "main", None) or importlib.import_module(f"{module}.__main__").main
