"""Loads a version according to the settings, and warms it up with its recorded requests."""

import contextlib
import ctypes
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from export.server.batching import Batcher
from export.server.config_files import read_config
from export.server.context import RequestContext
from export.server.errors import RequestError, ServingError, from_number, invalid_argument
from export.server.inference.examples import classify, multi_inference, regress
from export.server.inference.predict import predict
from export.server.metrics import Metrics
from export.server.models.saved_model import LoadedModel
from export.server.settings import ServerSettings
from export.wire.protos import config_pb2, prediction_log_pb2

WARMUP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
_MAX_RECORDS = 1000
_METHODS: dict[str | None, Callable[..., Any]] = {
    "predict_log": predict,
    "classify_log": classify,
    "regress_log": regress,
    "multi_inference_log": multi_inference,
}


def load(path: Path, version: int, settings: ServerSettings, batcher: Batcher | None, metrics: Metrics) -> LoadedModel:
    """Loads the version in a directory; raises ServingError if loading or warm-up fails."""
    model = LoadedModel(path, version, _session_config(settings), batcher)
    if settings.enable_model_warmup:
        try:
            with metrics.warm_up(str(path)):
                warm_up(model, path)
        except BaseException as error:
            model.close()
            if isinstance(error, RequestError):
                raise ServingError(f"{path} fails in warm-up ({error.code.name}): {error.message}") from error
            raise
    _trim_memory()
    return model


def _trim_memory() -> None:
    """Returns free memory to the system, which glibc would keep: after the preparation of graphs, a fifth of all."""
    with contextlib.suppress(OSError, AttributeError):  # on other systems
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def warm_up(model: LoadedModel, path: Path) -> None:
    """Replays the requests that are recorded beside a model, if any, as many at a time as there are cores."""
    file = path / WARMUP_FILE
    records = list(itertools.islice(_records(file), _MAX_RECORDS + 1)) if file.exists() else []
    if len(records) > _MAX_RECORDS:
        raise invalid_argument(f"Number of warmup records exceeds the maximum ({_MAX_RECORDS}) at {file}")
    requests = [_request(record, number, file) for number, record in enumerate(records, start=1)]
    with ThreadPoolExecutor(os.cpu_count(), "warm-up") as pool:
        replays = [pool.submit(method, model, request, RequestContext()) for method, request in requests]
        try:
            for replay in replays:
                replay.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _request(record: bytes, number: int, file: Path) -> tuple[Callable[..., Any], Any]:
    """Returns the function for a recorded request, and the request."""
    try:
        log = prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        raise invalid_argument(f"Failed to parse warmup record {number} from {file}") from error
    kind = log.WhichOneof("log_type")
    if kind not in _METHODS:
        raise invalid_argument(f"Unsupported log_type for warmup: {kind}")
    return _METHODS[kind], getattr(log, kind).request


def _records(file: Path) -> Iterator[bytes]:
    try:
        yield from tf.compat.v1.io.tf_record_iterator(str(file))
    except tf.errors.OpError as error:
        hint = "Please verify your warmup data is in TFRecord format."
        raise from_number(error.error_code, f"{error.message}. {hint}") from error


def _session_config(settings: ServerSettings) -> config_pb2.ConfigProto:
    file, threads = settings.tensorflow_session_config_file, settings.tensorflow_session_parallelism
    config = read_config("tensorflow_session_config_file", file) if file else config_pb2.ConfigProto()
    if intra := settings.tensorflow_intra_op_parallelism or threads:
        config.intra_op_parallelism_threads = intra
    if inter := settings.tensorflow_inter_op_parallelism or threads:
        config.inter_op_parallelism_threads = inter
    return config
