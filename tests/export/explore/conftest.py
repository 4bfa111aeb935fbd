"""Scripted models, the explorer over them, and a browser that opens its pages."""

import threading

import pytest
from support.explorer_models import ScriptedModels, serving

from export.client import Client
from export.explore import ExplorerServer, ServedModel
from zoo.explorer import Page

NAMES = ("translator", "classifier", "continuer", "deaf", "nowhere")
PATIENCE = 120  # seconds for a page on a busy machine


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


@pytest.fixture
def open_page(browser):
    """Returns a function that opens an address in a window of its own; nothing may go wrong in it."""
    contexts, wrong = [], []

    def open_page(url, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # The browser itself reports each answer that is an error; those belong to the tests of errors.
    assert not [line for line in wrong if "Failed to load resource" not in line]


@pytest.fixture
def file_of(tmp_path):
    """Returns a function that writes views as a self-contained file and returns its address."""

    def file_of(*views):
        return Page(views).save(tmp_path / "page.html").as_uri()

    return file_of
