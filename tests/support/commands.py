"""What the commands of this project make of their arguments, without running."""

import importlib

import pytest

from zoo.cli import ArgumentParser


class Parsed(BaseException):
    """Stops a command once its arguments are parsed."""


def parse(module, arguments):
    """Returns the arguments of a command as it reads them."""
    parse_known_args = ArgumentParser.parse_known_args

    def stop(self, *arguments):
        raise Parsed(*parse_known_args(self, *arguments))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Parsed) as caught:
        patch.setattr(ArgumentParser, "parse_known_args", stop, raising=False)
        importlib.import_module(module).main(arguments)
    namespace, unknown = caught.value.args
    assert not unknown, f"python -m {module} has no {unknown}"
    return namespace
