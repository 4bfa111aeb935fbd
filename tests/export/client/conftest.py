"""A scripted server and a client of it, and the command against any server."""

import io
import sys

import pytest
from support.scripted_server import Scripted, serving

from export.client import Client, cli

SECONDS = 60


@pytest.fixture
def service():
    """The scripted service."""
    return Scripted()


@pytest.fixture
def scripted_address(service):
    """Its address."""
    with serving(service) as address:
        yield address


@pytest.fixture
def scripted_client(scripted_address):
    """A client of it."""
    with Client(scripted_address, timeout=SECONDS) as client:
        yield client


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs the command in this process; returns its status, output and errors."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = cli.command([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return status, output.out, output.err

    return run
