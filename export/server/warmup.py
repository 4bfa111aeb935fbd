"""A new version answers its recorded requests before it answers anybody else's."""

from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError

from export.server import examples, inference
from export.server.deadline import Call
from export.server.models import LoadedModel
from export.server.status import from_number, invalid_argument
from export.wire.protos import prediction_log_pb2

WARMUP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
MAX_RECORDS = 1000
_ANSWERS = {
    "predict_log": inference.predict,
    "classify_log": examples.classify,
    "regress_log": examples.regress,
    "multi_inference_log": examples.multi_inference,
}


def warm_up(model: LoadedModel, path: Path, iterations: int = 1) -> int:
    """Replays the requests recorded beside a model; no file, no warm-up.

    Args:
        model: The model, loaded.
        path: The version's directory.
        iterations: How often each request is asked.

    Returns:
        How many requests were recorded.

    Raises:
        RequestError: A request fails, or the file is none of recorded requests.
    """
    file = path / WARMUP_FILE
    if not file.exists():
        return 0
    count = 0
    for record in _records(file):
        count += 1
        if count > MAX_RECORDS:
            raise invalid_argument(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {file}")
        try:
            log = prediction_log_pb2.PredictionLog.FromString(record)
        except DecodeError as error:
            raise invalid_argument(f"Failed to parse warmup record {count} from {file}") from error
        kind = log.WhichOneof("log_type")
        if kind not in _ANSWERS:
            raise invalid_argument(f"Unsupported log_type for warmup: {kind}")
        for _ in range(iterations):
            _ANSWERS[kind](model, getattr(log, kind).request, Call())
    return count


def _records(file: Path):
    try:
        yield from tf.compat.v1.io.tf_record_iterator(str(file))
    except tf.errors.OpError as error:
        raise from_number(
            error.error_code, f"{error.message}. Please verify your warmup data is in TFRecord format."
        ) from error
