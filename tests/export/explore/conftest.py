"""Scripted models and the explorer over them."""

import threading

import pytest
from support.explorer_models import ScriptedModels, serving

from export.client import Client
from export.explore import ExplorerServer, ServedModel

NAMES = ("translator", "classifier", "continuer", "deaf", "nowhere")


@pytest.fixture
def scripted():
    """The service, whose answers can be held back."""
    service = ScriptedModels()
    yield service
    service.release.set()


@pytest.fixture
def models(scripted):
    """Its models, asked over gRPC; the last is not served, and one is of a server that is not there."""
    with serving(scripted) as address:
        clients = [Client(address, name, retries=0, timeout=30) for name in NAMES]
        gone = Client("localhost:9", "gone", retries=0, timeout=5)
        named = zip((*NAMES, "gone"), (*clients, gone), strict=True)
        yield {name: ServedModel(client, name) for name, client in named}
        for client in (*clients, gone):
            client.close()


@pytest.fixture
def explorer(models):
    """The running explorer."""
    server = ExplorerServer([*models.values()], "one two three", allowed_hosts=["explorer.example"])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
