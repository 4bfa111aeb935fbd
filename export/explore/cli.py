"""The explorer's command: a web page for served models, or one self-contained file with their outputs."""

import contextlib
import webbrowser
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from export.client import Client, ServerError, add_connection_flags, read_texts, report_failure, tls_of
from export.explore.http_server import ExplorerServer
from export.explore.views import ServedModel
from zoo.errors import InputError
from zoo.explorer import Page
from zoo.runtime.cli import ArgumentParser

__all__ = ["ServerError", "command", "main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Raises:
        InputError: The flags are inconsistent, the address is in use, or, with `--html`, a model cannot be reached.
        ServerError: With `--html`: the server fails.
    """
    flags = _parse(argv)
    with _models(flags) as models:
        if flags.html:
            texts = flags.text or list(read_texts())
            page = Page([model.view(text, everything=True) for text in texts for model in models])
            print(page.save(flags.html))
            return
        server = ExplorerServer(models, " ".join(flags.text), flags.host, flags.port, flags.allowed_host)
        print(f"The explorer is at {server.url} (Ctrl-C ends it)", flush=True)
        if flags.open:
            webbrowser.open(server.url)
        with server:
            server.serve_forever()


def _parse(argv: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(
        prog="python -m export.explore",
        description=(
            "Shows the attention of served models in a browser, with the probability of each token and its "
            "alternatives. With --html writes one self-contained file instead."
        ),
        allow_abbrev=False,
    )
    parser.add_argument(
        "--server", default="localhost:8500", help="HOST:PORT of the model server (default localhost:8500)"
    )
    names = "a model's name on the server, or HOST:PORT/NAME for another server; can be repeated"
    parser.add_argument("--model", required=True, action="append", metavar="NAME", help=names)
    parser.add_argument("--port", type=int, default=8600, help="port of the page (default 8600; 0 for a free one)")
    hosts = "address to listen on (default 127.0.0.1, which only this machine can reach)"
    parser.add_argument("--host", default="127.0.0.1", help=hosts)
    allowed = "a host name by which browsers may open this page, besides localhost and addresses; can be repeated"
    parser.add_argument("--allowed_host", action="append", default=[], metavar="NAME", help=allowed)
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the views of the texts into one file and exit")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_connection_flags(parser)
    texts = "the initial text of the page; with --html the texts (default: the lines of standard input)"
    parser.add_argument("text", nargs="*", metavar="TEXT", help=texts)
    flags = parser.parse_args(argv)
    if not 0 <= flags.port <= 65535:
        parser.error(f"--port must be 0 to 65535. Received: {flags.port}")
    if len(set(flags.model)) < len(flags.model):
        parser.error(f"--model must not repeat a name. Received: {', '.join(flags.model)}")
    return flags


@contextlib.contextmanager
def _models(flags: Namespace) -> Iterator[list[ServedModel]]:
    """Yields the models of the flags, with open connections."""
    with contextlib.ExitStack() as stack:
        models = []
        for full_name in flags.model:
            server, _, name = full_name.rpartition("/")
            if not name:
                raise InputError(f"--model must be NAME or HOST:PORT/NAME. Received: {full_name!r}.")
            client = Client(server or flags.server, name, flags.timeout, flags.retries, tls_of(flags))
            models.append(ServedModel(stack.enter_context(client), full_name))
        yield models


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return report_failure(main, argv)
