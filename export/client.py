"""Asks a served model: `python -m export.client --server HOST:PORT --model NAME [TEXT ...]`.

Texts come from the arguments, or from standard input with one text a line. Works with this project's server and with
the stock one, and needs no TensorFlow at run time.
"""

import dataclasses
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import grpc
import numpy as np

from export.server.protos import predict_pb2, prediction_service_pb2_grpc
from export.server.signatures import DEFAULT_SIGNATURE
from export.server.tensors import to_array, to_list, to_proto
from zoo.cli import ArgumentParser, run_command
from zoo.errors import InputError

ATTENTION_SIGNATURE = "attention"
BATCH_SIZE = 64  # texts in one request of the command

_ADDRESS = re.compile(r"(.+):(\d+)")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")


class ServerError(InputError):
    """The server did not answer, or answered with an error.

    Attributes:
        code: The `grpc.StatusCode`.
    """

    def __init__(self, message: str, code: grpc.StatusCode):
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Alignment:
    """One answer of the `attention` signature, padding removed.

    Attributes:
        text: The output text.
        source_tokens: The S tokens of the input.
        target_tokens: The T tokens of the output.
        attention: float [layers, heads, T, S].
    """

    text: str
    source_tokens: list[str]
    target_tokens: list[str]
    attention: np.ndarray


class Client:
    """Asks one model of a server over gRPC.

    Args:
        server: `HOST:PORT` of the server's gRPC side.
        model: The model's name there.
        timeout: Seconds to wait for an answer.

    Raises:
        InputError: `server` is not an address.

    Example:
        with Client("localhost:8500", model="dates") as client:
            print(client.translate(["14 juillet 1789"]))
    """

    def __init__(self, server: str, model: str, timeout: float = 60.0):
        match = _ADDRESS.fullmatch(server)
        if match is None:
            raise InputError(f"A server is given as HOST:PORT, such as localhost:8500. Received: {server!r}")
        self._server, self._model, self._timeout = server, model, timeout
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if match[1] in _LOOPBACK:
            options.append(("grpc.enable_http_proxy", 0))  # a proxy's localhost is another one
        self._channel = grpc.insecure_channel(server, options=options)
        self._predict = prediction_service_pb2_grpc.PredictionServiceStub(self._channel).Predict

    def run(
        self, inputs: Mapping[str, np.ndarray], signature: str = DEFAULT_SIGNATURE, outputs: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Runs any signature.

        Args:
            inputs: Arrays by input name.
            signature: The signature's name.
            outputs: The outputs to ask for; empty means all.

        Returns:
            Arrays by output name; strings are arrays of `str` objects.

        Raises:
            ServerError: The server cannot be reached, takes too long, or refuses the request.
        """
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name = self._model
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(to_proto(array))
        try:
            response = self._predict(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise self._explain(error) from error
        return {name: _as_text(to_array(proto)) for name, proto in response.outputs.items()}

    def predict(self, texts: Sequence[str | bytes], signature: str = DEFAULT_SIGNATURE) -> dict[str, np.ndarray]:
        """Runs a signature whose one input is `text`, string [B].

        Args:
            texts: The B texts; `bytes` are sent as they are.
            signature: The signature's name.

        Returns:
            Arrays by output name; strings are arrays of `str` objects.

        Raises:
            ServerError: See `run`.
        """
        return self.run({"text": _strings(texts)}, signature)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Returns the output text for each text.

        Raises:
            ServerError: See `run`.
        """
        return self.run({"text": _strings(texts)}, outputs=["text"])["text"].tolist()

    def attention(self, texts: Sequence[str | bytes]) -> list[Alignment]:
        """Returns output text, tokens and attention weights for each text.

        Raises:
            ServerError: See `run`.
        """
        return _alignments(self.predict(texts, ATTENTION_SIGNATURE))

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __enter__(self) -> "Client":
        """Returns the client."""
        return self

    def __exit__(self, *_) -> None:
        """Closes the connection."""
        self.close()

    def _explain(self, error: grpc.RpcError) -> ServerError:
        code, details = error.code(), error.details()
        if code == grpc.StatusCode.UNAVAILABLE:
            message = f"No server answers at {self._server} ({details})."
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            message = f"The server at {self._server} did not answer within {self._timeout:g} s."
        else:
            message = f"The server at {self._server} refused the request: {code.name}: {details}"
        return ServerError(message, code)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        argv: Arguments without the program's name; `None` means those of the process.

    Raises:
        InputError: The server cannot be asked, or a heatmap cannot be written.
    """
    flags = _parse(argv)
    texts: Iterable[bytes] = map(os.fsencode, flags.text) if flags.text else _read_lines()
    paths: Iterator[Path] = iter(())
    if flags.heatmap:
        texts = list(texts)  # the files' names depend on how many there are
        paths = iter(_heatmap_paths(flags.heatmap, len(texts)))
    remaining = iter(texts)
    with Client(flags.server, flags.model, flags.timeout) as client:
        while batch := list(itertools.islice(remaining, BATCH_SIZE)):
            outputs = client.predict(batch, flags.signature)
            for line in _lines(outputs, flags, len(batch)):
                print(line, flush=True)
            if flags.heatmap:
                _draw(batch, _alignments(outputs), paths)


def _parse(argv: Sequence[str] | None):
    parser = ArgumentParser(
        prog="python -m export.client",
        description="Sends texts to a served model and prints its answers.",
        allow_abbrev=False,
    )
    parser.add_argument("--server", default="localhost:8500", help="HOST:PORT (default localhost:8500)")
    parser.add_argument("--model", required=True, help="the model's name on the server")
    parser.add_argument("--signature", help="what to ask for (default serving_default)")
    parser.add_argument("--scores", action="store_true", help="print the log probability after a tab")
    parser.add_argument(
        "--heatmap",
        metavar="FILE",
        type=Path,
        help="draw the attention weights of the signature `attention`; several texts go to FILE-1, FILE-2, …",
    )
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for an answer (default 60)")
    parser.add_argument("text", nargs="*", metavar="TEXT", help="the texts (default: the lines of standard input)")
    flags = parser.parse_args(argv)
    if flags.signature is None:
        flags.signature = ATTENTION_SIGNATURE if flags.heatmap else DEFAULT_SIGNATURE
    if flags.heatmap and flags.signature != ATTENTION_SIGNATURE:
        parser.error(f"--heatmap needs --signature {ATTENTION_SIGNATURE}. Received: {flags.signature}")
    if not flags.timeout > 0:
        parser.error(f"--timeout must be positive. Received: {flags.timeout:g}")
    return flags


def _read_lines() -> Iterator[bytes]:
    """Yields the lines of standard input; only a line feed ends one, and a carriage return before it is dropped."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _heatmap_paths(path: Path, count: int) -> list[Path]:
    if count == 1:
        return [path]
    return [path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(1, count + 1)]


def _lines(outputs: Mapping[str, np.ndarray], flags, count: int) -> Iterator[str]:
    """Yields a line for each of the `count` texts: the output text where there is one, else JSON."""
    if flags.signature not in (DEFAULT_SIGNATURE, ATTENTION_SIGNATURE) or "text" not in outputs:
        columns = {name: _column(array, count) for name, array in outputs.items()}
        for row in zip(*columns.values(), strict=True):
            yield json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)
    elif not flags.scores:
        yield from outputs["text"]
    elif "log_prob" in outputs:
        for text, score in zip(outputs["text"], outputs["log_prob"], strict=True):
            yield f"{text}\t{score:.4f}"
    else:
        raise InputError(f"The signature {flags.signature} gives no log_prob for --scores, only {sorted(outputs)}.")


def _column(array: np.ndarray, count: int) -> list:
    """Returns an item for each of the `count` texts; an output that has no batch axis is repeated."""
    return to_list(array) if array.shape[:1] == (count,) else [to_list(array)] * count


def _draw(texts: Sequence[bytes], alignments: Sequence[Alignment], paths: Iterator[Path]) -> None:
    from export.heatmap import attention_heatmap  # here, because matplotlib takes longer than a request

    for text, answer, path in zip(texts, alignments, paths, strict=False):
        title = f"{text.decode('utf-8', 'replace')}\n{answer.text}"
        attention_heatmap(answer.source_tokens, answer.target_tokens, answer.attention, path, title)


def _alignments(outputs: Mapping[str, np.ndarray]) -> list[Alignment]:
    names = ("text", "source_tokens", "target_tokens", "attention")
    missing = [name for name in names if name not in outputs]
    if missing:
        raise InputError(f"The model's attention signature lacks the outputs {missing}; it has {sorted(outputs)}.")
    return [_alignment(*row) for row in zip(*(outputs[name] for name in names), strict=True)]


def _alignment(text: str, source: np.ndarray, target: np.ndarray, attention: np.ndarray) -> Alignment:
    real_source, real_target = source != "", target != ""  # padding is the empty token
    weights = attention[:, :, real_target][:, :, :, real_source]
    return Alignment(text, source[real_source].tolist(), target[real_target].tolist(), weights)


def _strings(texts: Sequence[str | bytes]) -> np.ndarray:
    if isinstance(texts, str | bytes):
        raise InputError("A list of texts is expected. Received: a single text; put it into a list.")
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def _as_text(array: np.ndarray) -> np.ndarray:
    if not array.dtype.hasobject:
        return array
    return np.frompyfunc(lambda value: value.decode("utf-8", "replace"), 1, 1)(array)


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_command(main)


if __name__ == "__main__":
    sys.exit(command())
