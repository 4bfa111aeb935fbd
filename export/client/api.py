"""The `Client` class: a served model as Python methods, without TensorFlow."""

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import grpc
import numpy as np

from export.client.answers import Alignment, Classification, Outputs, alignments, classifications, rows
from export.client.channel import MAX_RETRIES, Tls, open_channel
from export.client.errors import RequestRefused, is_loading, server_error
from export.client.seeds import row_seeds
from export.wire.protos import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc
from export.wire.tensors import as_text, to_array, to_proto
from zoo.decoding_options import SEED, GenerationOptions
from zoo.errors import InputError

DEFAULT_SIGNATURE = "serving_default"
ATTENTION_SIGNATURE = "attention"
SAMPLE_SIGNATURE = "sample"
BATCH_SIZE = 64  # texts in one request
IN_FLIGHT = 4  # concurrent requests
_LOADING_WAIT = 0.5  # seconds between requests to a model that is loading
MAX_TIMEOUT = 1e8  # seconds; gRPC treats a much later deadline as expired

_Text = TypeVar("_Text", bound=str | bytes)


@dataclasses.dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a signature.

    Attributes:
        inputs: The names of its inputs.
        outputs: The names of its outputs.
    """

    inputs: frozenset[str]
    outputs: frozenset[str]


class Pending:
    """A request in progress, see `Client.start`."""

    def __init__(
        self, send: Callable[[float], grpc.Future], server: str, timeout: float, waiting: Callable[[str], None]
    ):
        self._send, self._server, self._timeout, self._waiting = send, server, timeout, waiting
        self._deadline = time.monotonic() + timeout
        self._future = send(timeout)

    def result(self, timeout: float | None = None) -> Outputs:
        """Waits for the response and returns the outputs, as `Client.predict` does.

        While the model is loading, the request is repeated until the client's own timeout.

        Args:
            timeout: Seconds to wait; `None` means the timeout of the client.

        Raises:
            TimeoutError: There is no response yet; the request continues.
            ServerError: See `Client.predict`.
            RequestRefused: See `Client.predict`.
        """
        response = self.message(timeout)
        return {name: as_text(to_array(proto)) for name, proto in response.outputs.items()}

    def message(self, timeout: float | None = None) -> Any:
        """Waits for the response as `result` does, and returns its protocol buffer."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return self._future.result(None if end is None else max(0.0, end - time.monotonic()))
            except grpc.FutureTimeoutError as error:
                raise TimeoutError("there is no response yet") from error
            except grpc.RpcError as error:
                if not is_loading(error) or self._deadline <= time.monotonic() + _LOADING_WAIT:
                    raise server_error(error, self._server, self._timeout) from error
                self._waiting(str(error.details()))
            time.sleep(_LOADING_WAIT)
            self._future = self._send(self._deadline - time.monotonic())

    def cancel(self) -> None:
        """Cancels the request on the server."""
        self._future.cancel()


class Client:
    """The gRPC client of one model of a server.

    Methods that take texts send `BATCH_SIZE` of them per request and `IN_FLIGHT` requests at once.

    Args:
        server: `HOST:PORT` of the server's gRPC port.
        model: The model's name on the server.
        timeout: Seconds to wait for the response to one request, including retries; at most 1e8, which is three years.
        retries: How often a request is repeated if the server is unavailable, 0 to 4, with exponential backoff.
        tls: How to encrypt the connection; `None` means no encryption.
        waiting: Called with a line of text each time a request waits for a model that is loading.

    Raises:
        InputError: `server` is not an address, `timeout` or `retries` is out of range, or a PEM file cannot be read.

    Example:
        with Client("localhost:8500", model="dates") as client:
            print(client.translate(["14 juillet 1989"]))
    """

    def __init__(
        self,
        server: str,
        model: str = "default",
        timeout: float = 60.0,
        retries: int = MAX_RETRIES,
        tls: Tls | None = None,
        waiting: Callable[[str], None] = lambda line: None,
    ):
        if not 0 < timeout <= MAX_TIMEOUT:
            raise InputError(f"`timeout` must be positive, at most {MAX_TIMEOUT:g} s. Received: timeout={timeout:g}")
        self._server, self._model, self._timeout, self._waiting = server, model, timeout, waiting
        self._channel = open_channel(server, tls, retries)
        service = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._predict, self._metadata = service.Predict, service.GetModelMetadata

    def predict(
        self, signature: str = DEFAULT_SIGNATURE, inputs: Mapping[str, Any] | None = None, outputs: Sequence[str] = ()
    ) -> Outputs:
        """Runs any signature once.

        Args:
            signature: The signature's name.
            inputs: Arrays, or values that NumPy converts to arrays, by input name. Lists of `str` and `bytes` are
                strings; Python's floats become float32 and its integers int32, as in TensorFlow.
            outputs: The outputs to request; empty means all.

        Returns:
            Arrays by output name; strings are arrays of `str` objects.

        Raises:
            ServerError: The server fails while it processes the request.
            RequestRefused: The server cannot be reached, takes too long, or rejects the request.
        """
        return self.start(signature, inputs, outputs).result()

    def start(
        self, signature: str = DEFAULT_SIGNATURE, inputs: Mapping[str, Any] | None = None, outputs: Sequence[str] = ()
    ) -> Pending:
        """Sends the request of `predict` and returns without waiting; the returned object can wait or cancel.

        Args:
            signature: See `predict`.
            inputs: See `predict`.
            outputs: See `predict`.
        """
        return self._send(self._predict, self._request(signature, inputs or {}, outputs))

    def _send(self, call: Any, request: Any) -> Pending:
        return Pending(
            lambda timeout: call.future(request, timeout=timeout), self._server, self._timeout, self._waiting
        )

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures of the model by name; raises as `predict` does."""
        return {
            name: Signature(frozenset(definition.inputs), frozenset(definition.outputs))
            for name, definition in self._signature_definitions().items()
        }

    def stream(
        self,
        requests: Iterable[Mapping[str, Any] | None],
        signature: str = DEFAULT_SIGNATURE,
        outputs: Sequence[str] = (),
        in_flight: int = IN_FLIGHT,
    ) -> Iterator[Outputs]:
        """Runs a signature for each of many requests, several concurrently, and yields the responses in order.

        Args:
            requests: Inputs as for `predict`, drawn as they are needed. Before a long wait for the next input, the
                iterable can yield `None`: the responses to all pending requests are then yielded first.
            signature: See `predict`.
            outputs: See `predict`.
            in_flight: The maximum number of concurrent requests.

        Raises:
            ServerError: See `predict`; all pending requests are then cancelled.
        """
        pending: collections.deque[Pending] = collections.deque()
        try:
            for inputs in requests:
                if inputs is not None:
                    pending.append(self.start(signature, inputs, outputs))
                while len(pending) > (0 if inputs is None else in_flight - 1):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for request in pending:
                request.cancel()

    def translate(self, texts: Iterable[str | bytes]) -> list[str]:
        """Returns the output text for each text; `bytes` are sent unchanged. Raises as `predict` does."""
        return _texts(self.stream(batches(texts), outputs=["text"]))

    def classify(self, texts: Iterable[str | bytes]) -> list[Classification]:
        """Returns the label and the probability of every class for each text; raises as `predict` does."""
        answers = self.stream(batches(texts), outputs=["label", "classes", "probabilities"])
        return [classification for outputs in answers for classification in classifications(outputs)]

    def generate(
        self, prompts: Iterable[str | bytes], *, temperature: float | None = None, top_p: float = 1.0, seed: int = 0
    ) -> list[str]:
        """Returns a language model's continuation of each prompt, the same as `zoo.load(…).generate`.

        Args:
            prompts: The texts to continue.
            temperature: `None` means the default decoding; otherwise, the larger it is, the more uniform are samples.
            top_p: Sample from the smallest set of most probable tokens with this total probability, in (0, 1].
            seed: Seed of the samples, an integer of 32 bits; only used with `temperature`.

        Raises:
            InputError: `temperature`, `top_p` or `seed` is out of range.
            ServerError: See `predict`.
        """
        if temperature is None:
            return self.translate(prompts)
        # They are checked here, because an invalid request can make others in its batch fail on the server.
        options = GenerationOptions(temperature=temperature, top_p=top_p)
        numbers = {"temperature": np.float32(options.temperature), "top_p": np.float32(options.top_p)}
        seed, requests = SEED.checked("seed", seed), list(batches(prompts))
        try:
            return _texts(self.stream(_sampling_requests(requests, seed, numbers), SAMPLE_SIGNATURE, ["text"]))
        except RequestRefused as error:
            # Exports of the first version take one seed for all texts of a request.
            if error.code != grpc.StatusCode.INVALID_ARGUMENT or not self._is_scalar(SAMPLE_SIGNATURE, "seed"):
                raise
        shared = ({**inputs, "seed": np.int32(seed), **numbers} for inputs in requests)
        return _texts(self.stream(shared, SAMPLE_SIGNATURE, ["text"]))

    def _is_scalar(self, signature: str, name: str) -> bool:
        """Returns whether a signature declares the input with this name as a scalar."""
        info = self._signature_definitions()[signature].inputs[name]  # an empty message if the input does not exist
        return bool(info.dtype) and not info.tensor_shape.unknown_rank and not info.tensor_shape.dim

    def _signature_definitions(self) -> Any:
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = self._model
        response = self._send(self._metadata, request).message()
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return signatures.signature_def

    def attention(self, texts: Iterable[str | bytes]) -> list[Alignment]:
        """Returns output text, tokens and attention weights for each text; raises as `predict` does."""
        answers = self.stream(batches(texts), ATTENTION_SIGNATURE)
        return [alignment for outputs in answers for alignment in alignments(outputs)]

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str]) -> Any:
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name = self._model
        request.model_spec.signature_name = signature
        for name, values in inputs.items():
            try:
                request.inputs[name].CopyFrom(to_proto(_as_array(values)))
            except (TypeError, ValueError) as error:
                raise InputError(f"The input {name!r} cannot be sent: {error}.") from error
        return request


def batches(texts: Iterable[_Text], size: int = BATCH_SIZE) -> Iterator[dict[str, list[_Text]]]:
    """Yields the inputs of the requests for a signature whose only input is `text`, string [B].

    The texts are drawn as they are needed. Raises InputError for a single text.
    """
    if isinstance(texts, str | bytes):
        raise InputError(f"`texts` must be a list of texts. Received: a single text, {texts[:40]!r}.")
    remaining = iter(texts)
    while batch := list(itertools.islice(remaining, size)):
        yield {"text": batch}


def _sampling_requests(
    requests: Iterable[Mapping[str, Any]], seed: int, numbers: Mapping[str, np.float32]
) -> Iterator[dict[str, Any]]:
    """Yields sampling requests, with a seed and the numbers for each text."""
    first = 0
    for inputs in requests:
        rows = range(first, first := first + len(inputs["text"]))
        repeated = {name: np.full(len(rows), number) for name, number in numbers.items()}
        yield {**inputs, "seed": row_seeds(seed, rows), **repeated}


def _texts(answers: Iterable[Outputs]) -> list[str]:
    return [text for outputs in answers for (text,) in rows(outputs, "text")]


def _as_array(values: Any) -> np.ndarray:
    """Returns an array; Python numbers get TensorFlow's default types, not NumPy's."""
    if isinstance(values, np.ndarray | np.generic):
        return np.asarray(values)
    # NumPy's own string types drop trailing zero bytes and cannot mix text and bytes.
    objects = np.asarray(values, object)
    if any(isinstance(value, str | bytes) for value in objects.flat):
        return objects
    array = np.asarray(values)
    narrow = {"f": np.float32, "i": np.int32}.get(array.dtype.kind)
    return array if narrow is None else array.astype(narrow)
