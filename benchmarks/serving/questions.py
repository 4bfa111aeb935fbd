"""Questions to a served translator, and answers that can be compared."""

from collections.abc import Sequence
from typing import NamedTuple

from export.wire.protos import predict_pb2
from export.wire.tensors import to_array, to_proto

MODEL = "measured"
METHOD = "/tensorflow.serving.PredictionService/Predict"
OUTPUTS = ("text", "log_prob")
TOLERANCE = 0.025  # of log probabilities: other neighbours in a batch mean other widths, and other roundings


class Response(NamedTuple):
    """What a translator answers to one question: the translation of each sentence, and its log probability."""

    texts: tuple[str, ...]
    log_probs: tuple[float, ...]

    @classmethod
    def of(cls, texts: Sequence[bytes], log_probs: Sequence[float]) -> "Response":
        """Returns the answer of these outputs, rounded so that equal ones are counted together."""
        return cls(tuple(text.decode() for text in texts), tuple(round(float(value), 2) for value in log_probs))

    def agrees(self, other: "Response") -> bool:
        """Tells whether this is the other answer, as far as rounding lets one see."""
        pairs = zip(self.log_probs, other.log_probs, strict=False)
        return self.texts == other.texts and all(abs(first - second) <= TOLERANCE for first, second in pairs)


def question(texts: Sequence[str]) -> predict_pb2.PredictRequest:
    """Returns the request that asks for the translations of some sentences."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = MODEL
    request.inputs["text"].CopyFrom(to_proto([text.encode() for text in texts]))
    return request


def read(response: predict_pb2.PredictResponse) -> tuple[int, Response]:
    """Returns the version that answered, and its answer."""
    return response.model_spec.version.value, Response.of(*(to_array(response.outputs[name]) for name in OUTPUTS))
