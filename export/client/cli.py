"""The client's command: reads texts from its arguments or standard input, prints outputs to standard output."""

import contextlib
import json
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from export.client.answers import Outputs, alignments, attends_to_itself
from export.client.api import ATTENTION_SIGNATURE, BATCH_SIZE, DEFAULT_SIGNATURE, Client, batches
from export.client.flags import add_connection_flags, report_failure, tls_of
from export.client.text_input import input_size, read_batches
from export.wire.tensors import to_rows
from export.wire.text import one_line
from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, is_closed

Request = dict[str, list[bytes]]
# Servers that batch require optional inputs to be sent for each text, unless a request has only one text.
_TEXTS_OF_REQUEST = {"attention_all": 1}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Raises:
        InputError: The server rejects a request or cannot be reached, a heatmap cannot be written, or standard input or
            output is closed.
        ServerError: The server fails.
    """
    flags = _parse(argv)
    if is_closed(sys.stdout):
        raise InputError("Standard output is closed; the outputs cannot be printed.")
    size = _TEXTS_OF_REQUEST.get(flags.signature, BATCH_SIZE)
    requests: Iterable[Request | None]
    requests = batches(map(os.fsencode, flags.text), size) if flags.text else read_batches(size)
    paths: Iterator[Path] = iter(())
    if flags.heatmap:
        requests = all_requests = [request for request in requests if request is not None]
        # The file names depend on the number of texts.
        paths = iter(_heatmap_paths(flags.heatmap, sum(len(request["text"]) for request in all_requests)))
    sent: list[list[bytes]] = []
    printed: set[str] = set()

    def print_once(line: str) -> None:
        if line not in printed:
            printed.add(line)
            print(line, file=sys.stderr, flush=True)

    with (
        Client(flags.server, flags.model, flags.timeout, flags.retries, flags.tls, print_once) as client,
        _progress() as advance,
    ):
        for outputs in client.stream(_recorded(requests, sent), flags.signature):
            batch = sent.pop(0)
            lines = list(_lines(outputs, flags, len(batch)))
            if flags.heatmap:  # drawn first, so that nothing is printed if it fails
                _draw(batch, outputs, paths, flags)
            for line in lines:
                print(line)
            sys.stdout.flush()
            advance(batch)


def _parse(argv: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(
        prog="python -m export.client",
        description="Sends texts to a served model and prints its outputs.",
        allow_abbrev=False,
    )
    parser.add_argument("--server", default="localhost:8500", help="HOST:PORT (default localhost:8500)")
    parser.add_argument("--model", required=True, help="the model's name on the server")
    parser.add_argument("--signature", help="the signature to run (default serving_default)")
    parser.add_argument("--scores", action="store_true", help="print the log probability after a tab")
    parser.add_argument("--json", action="store_true", help="print all outputs as JSON, a line per text")
    heatmap = "draw the attention weights of the signature `attention`; for several texts, into FILE-1, FILE-2, …"
    parser.add_argument("--heatmap", metavar="FILE", type=Path, help=heatmap)
    parser.add_argument("--layer", type=int, default=-1, metavar="L", help="the layer to draw (default -1, the last)")
    heads = "the head to draw, or all of them in one picture (default mean)"
    parser.add_argument("--head", type=_head, default="mean", metavar="H|mean|all", help=heads)
    add_connection_flags(parser)
    parser.add_argument("text", nargs="*", metavar="TEXT", help="the texts (default: the lines of standard input)")
    flags = parser.parse_args(argv)
    if flags.signature is None:
        flags.signature = ATTENTION_SIGNATURE if flags.heatmap else DEFAULT_SIGNATURE
    if flags.heatmap and flags.signature != ATTENTION_SIGNATURE:
        parser.error(f"--heatmap requires --signature {ATTENTION_SIGNATURE}. Received: {flags.signature}")
    flags.tls = tls_of(flags)
    return flags


def _head(text: str) -> int | str:
    if text in ("mean", "all"):
        return text
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"a number, mean or all is expected. Received: {text!r}") from None


def _recorded(requests: Iterable[Request | None], sent: list[list[bytes]]) -> Iterator[Request | None]:
    """Yields the requests and appends the texts of each to `sent`."""
    for request in requests:
        if request is not None:
            sent.append(request["text"])
        yield request


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Sequence[bytes]], None]]:
    """Yields a function that counts a batch; shows a bar if only standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda batch: None
        return
    from tqdm import tqdm  # imported late, because most runs show no bar

    with tqdm(total=input_size(), unit="B", unit_scale=True, desc="translated") as bar:
        lines = 0

        def advance(batch: Sequence[bytes]) -> None:
            nonlocal lines
            lines += len(batch)
            bar.set_postfix_str(f"{lines} lines", refresh=False)
            bar.update(sum(len(text) + 1 for text in batch))

        yield advance


def _heatmap_paths(path: Path, count: int) -> list[Path]:
    if count == 1:
        return [path]
    return [path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(1, count + 1)]


def _lines(outputs: Outputs, flags: Namespace, count: int) -> Iterator[str]:
    """Yields a line for each of the `count` texts: the output text if there is one, otherwise JSON."""
    if flags.heatmap and "text" not in outputs:  # The picture shows the attention.
        outputs = {name: values for name, values in outputs.items() if name != "attention"}
    plain = flags.signature in (DEFAULT_SIGNATURE, ATTENTION_SIGNATURE) and "text" in outputs
    if flags.json or not plain:
        yield from (json.dumps(row, ensure_ascii=False) for row in to_rows(outputs, count))
    elif not flags.scores:
        yield from map(_one_line, outputs["text"])
    elif "log_prob" in outputs:
        for text, score in zip(outputs["text"], outputs["log_prob"], strict=True):
            yield f"{_one_line(text)}\t{score:.4f}"
    else:
        raise InputError(
            f"--scores requires the output log_prob; the signature {flags.signature} has only {sorted(outputs)}."
        )


def _one_line(text: str) -> str:
    return one_line(text.encode()).decode()


def _draw(texts: Sequence[bytes], outputs: Outputs, paths: Iterator[Path], flags: Namespace) -> None:
    """Draws a heatmap for each text that has tokens."""
    from export.heatmap import attention_heatmap  # imported late, because importing matplotlib is slow

    axes = ("attended to", "attending") if attends_to_itself(outputs) else ("source", "target")
    for text, answer, path in zip(texts, alignments(outputs), paths, strict=False):
        tokens = answer.source_tokens, answer.target_tokens
        if not all(tokens):
            print(f"no picture {path}: there are no tokens", file=sys.stderr)
            continue
        title = "\n".join(filter(None, [text.decode("utf-8", "replace"), answer.text]))
        attention_heatmap(*tokens, answer.attention, path, title, flags.layer, flags.head, axes)


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return report_failure(main, argv)
