"""Requests to a served translator, and responses that can be compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from export.wire.protos import predict_pb2
from export.wire.tensors import to_array, to_proto

MODEL = "measured"
METHOD = "/tensorflow.serving.PredictionService/Predict"
OUTPUTS = ("text", "log_prob")
TOLERANCE = 0.025  # of log probabilities, whose rounding depends on the other rows of a batch


class Response(NamedTuple):
    """The translations of the sentences of one request, and their log probabilities, if the server returns these."""

    texts: tuple[str, ...]
    log_probs: tuple[float, ...] = ()

    @classmethod
    def of(cls, texts: Sequence[bytes], log_probs: Sequence[float] = ()) -> "Response":
        """Returns the response of these outputs, rounded so that equal ones are counted together."""
        return cls(tuple(text.decode() for text in texts), tuple(round(float(value), 2) for value in log_probs))

    def agrees(self, other: "Response") -> bool:
        """Returns whether texts are equal and log probabilities differ by no more than `TOLERANCE`."""
        pairs = zip(self.log_probs, other.log_probs, strict=False)
        return self.texts == other.texts and all(abs(first - second) <= TOLERANCE for first, second in pairs)


def predict_request(texts: Sequence[str], outputs: Sequence[str] = ()) -> predict_pb2.PredictRequest:
    """Returns the request for the translations of some sentences; no `outputs` means all of them."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = MODEL
    request.inputs["text"].CopyFrom(to_proto([text.encode() for text in texts]))
    request.output_filter.extend(outputs)
    return request


def read_response(content: bytes) -> tuple[int, Response]:
    """Returns the version of the model that answered, and its response."""
    response = predict_pb2.PredictResponse.FromString(content)
    outputs = (to_array(response.outputs[name]) for name in OUTPUTS if name in response.outputs)
    return response.model_spec.version.value, Response.of(*outputs)


@dataclass(frozen=True)
class Protocol:
    """How a client writes a request for some sentences, and reads the version that answered and its response."""

    method: str
    write: Callable[[Sequence[str]], bytes]
    read: Callable[[bytes], tuple[int, Response]]


PROTOCOLS = {
    "predict": Protocol(METHOD, lambda texts: predict_request(texts).SerializeToString(), read_response),
    "predict text": Protocol(METHOD, lambda texts: predict_request(texts, ["text"]).SerializeToString(), read_response),
    # That of `benchmarks.peers.ctranslate2_server`, which takes one sentence.
    "text": Protocol(
        "/peer.Translator/Translate", lambda texts: texts[0].encode(), lambda content: (0, Response.of([content]))
    ),
}
