"""The flags of `tensorflow_model_server` as settings, one field per flag."""

import os
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from export.server.errors import ServingError

# Flags of the stock server that are ignored here: other runtimes and devices, its threads, caches and profiler, and
# variants of loading and serving that are off by default.
WITHOUT_EFFECT = frozenset(
    """enable_per_model_batching_parameters enable_profiler enable_serialization_as_tensor_content
    enable_signature_method_name_check experimental_cc_shared_lib flush_filesystem_caches load_retry_interval_micros
    max_num_load_retries mixed_precision num_load_threads num_request_iterations_for_warmup
    num_tflite_interpreters_per_pool num_tflite_pools num_unload_threads per_process_gpu_memory_fraction
    platform_config_file prefer_tflite_model remove_unused_fields_from_bundle_metagraph saved_model_tags
    server_shutdown_timeout_in_ms skip_initialize_tpu thread_pool_factory_config_file total_model_memory_limit_bytes
    use_alts_credentials""".split()
)
_LARGEST = 2**31 - 1  # of int32, the type of most numbers in the stock server
_THREADS = 10_000
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bool(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise ArgumentTypeError(f"expected true or false. Received: {text!r}")
    return values[text.lower()]


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise ArgumentTypeError(f"a port is a number from 0 to 65535. Received: {text!r}")
    return int(text)


def _flag(
    default: Any,
    text: str,
    within: tuple[float, float] = (0, _LARGEST),
    parse: Callable[[str], Any] | None = None,
    own: bool = False,
) -> Any:
    """Declares a flag; `within` is the range of a number, and `own` marks flags that the stock server lacks."""
    parse = parse or (_bool if isinstance(default, bool) else type(default))
    text = f"{text} (not a flag of the stock server)" if own else text
    return field(default=default, metadata={"help": text, "parse": parse, "within": within, "own": own})


@dataclass(frozen=True)
class ServerSettings:
    """The settings of a server; names, meaning and defaults are the stock server's, except as commented."""

    # Models
    model_name: str = _flag("default", "the model's name in requests; ignored with --model_config_file")
    model_base_path: str = _flag("", "the directory of the numbered versions")
    model_config_file: str = _flag("", "a ModelServerConfig in text format: several models, version policies, labels")
    model_config_file_poll_wait_seconds: int = _flag(0, "seconds between readings of that file; 0 reads it once")
    file_system_poll_wait_seconds: float = _flag(1.0, "seconds between searches for new versions; 0 searches once")
    allow_version_labels_for_unavailable_models: bool = _flag(False, "labels may name versions that are not loaded")
    enable_model_warmup: bool = _flag(True, "replay the model's recorded requests before serving it")

    # Addresses. In the stock server, port 0 means no port; here it picks a free port, for tests and demos.
    port: int = _flag(8500, "gRPC port; 0 picks a free one, or means none with --grpc_socket_path", parse=_port)
    grpc_socket_path: str = _flag("", "an additional UNIX socket for gRPC")
    rest_api_port: int | None = _flag(None, "REST port; 0 picks a free one", parse=_port)
    rest_api_num_threads: int = _flag(max(16, 4 * _CORES), "threads for REST requests", (1, _THREADS))
    rest_api_timeout_in_ms: int = _flag(
        30_000, "timeout of a REST request; 0 or less means none", (-_LARGEST, _LARGEST)
    )
    rest_api_enable_cors_support: bool = _flag(False, "send CORS headers")
    # More threads than cores, because threads wait while TensorFlow computes, and batches need several requests.
    grpc_max_threads: int = _flag(max(32, 4 * _CORES), "threads for gRPC requests", (1, _THREADS))
    grpc_channel_arguments: str = _flag("", "options of the gRPC server, such as grpc.max_connection_age_ms=2000,…")
    ssl_config_file: str = _flag("", "an SSLConfig in text format: gRPC over TLS")
    enable_grpc_healthcheck_service: bool = _flag(False, "serve grpc.health.v1")
    monitoring_config_file: str = _flag("", "a MonitoringConfig in text format: metrics on the REST port")

    # Computation
    enable_batching: bool = _flag(False, "batch requests of several clients")
    batching_parameters_file: str = _flag("", "BatchingParameters in text format")
    tensorflow_session_parallelism: int = _flag(
        0, "threads inside and between ops; 0 means the number of cores", (0, _THREADS)
    )
    tensorflow_intra_op_parallelism: int = _flag(0, "threads inside an op", (0, _THREADS))
    tensorflow_inter_op_parallelism: int = _flag(
        0, "threads between ops; -1 means the request's thread", (-1, _THREADS)
    )
    xla_cpu_compilation_enabled: bool = _flag(False, "allow XLA compilation; if false, signatures that require it fail")
    xla_gpu_compilation_enabled: bool = _flag(False, "the same as --xla_cpu_compilation_enabled")
    tensorflow_session_config_file: str = _flag("", "a ConfigProto in text format; other flags override it")

    host: str = _flag("0.0.0.0", "the address to listen on", own=True)
    max_queued_requests: int = _flag(
        1000, "maximum number of concurrent gRPC calls; others get RESOURCE_EXHAUSTED", (1, _LARGEST), own=True
    )
    # Long texts take megabytes per row in a model, and in Python several times the size of the request.
    max_request_rows: int = _flag(256, "maximum rows of a request; larger ones are rejected", (1, _LARGEST), own=True)
    max_request_bytes: int = _flag(
        32 << 20, "maximum bytes of a request, received or expanded; larger ones are rejected", (1, _LARGEST), own=True
    )
    drain_seconds: float = _flag(20.0, "seconds for which calls in progress may continue after SIGTERM", own=True)
    log_level: str = _flag("warning", "minimum severity of logged events: debug, info, warning, error", own=True)
    log_requests: bool = _flag(False, "log one line for each request, without its contents", own=True)
    log_contents: bool = _flag(False, "log the contents of failing requests, too", own=True)


def add_flags(parser: ArgumentParser) -> None:
    """Adds a flag for each setting, and the ignored flags, to a parser whose result omits flags that are not set."""
    for item in fields(ServerSettings):
        parse, text = item.metadata["parse"], item.metadata["help"].replace("%", "%%")
        text = text if item.default in ("", None) else f"{text} (default: {item.default})"
        optional: dict[str, Any] = {"nargs": "?", "const": True} if parse is _bool else {}
        parser.add_argument(f"--{item.name}", type=parse, help=text, **optional)
    for name in sorted(WITHOUT_EFFECT):  # with or without a value
        parser.add_argument(f"--{name}", nargs="?", const=True, help="ignored; for compatibility with the stock server")


def own_flags() -> set[str]:
    """Returns the names of the flags that the stock server lacks."""
    return {item.name for item in fields(ServerSettings) if item.metadata["own"]}


def check_settings(settings: ServerSettings) -> None:
    """Raises ServingError for settings that are out of range or inconsistent."""
    if not (settings.model_base_path or settings.model_config_file):
        raise ServingError("--model_base_path or --model_config_file is required")
    if settings.batching_parameters_file and not settings.enable_batching:
        raise ServingError("--batching_parameters_file requires --enable_batching")
    if settings.log_level not in ("debug", "info", "warning", "error"):
        raise ServingError(f"--log_level must be debug, info, warning or error. Received: {settings.log_level!r}")
    for item in fields(settings):
        value, (least, most) = getattr(settings, item.name), item.metadata["within"]
        if item.metadata["parse"] in (int, float) and not least <= value <= most:
            raise ServingError(f"--{item.name} must be {least} to {most}. Received: {value}")


def channel_arguments(text: str) -> dict[str, int | str]:
    """Parses `--grpc_channel_arguments`, comma-separated name=value pairs; raises ServingError for others."""
    options: dict[str, int | str] = {}
    for argument in filter(None, text.split(",")):
        name, equals, value = argument.partition("=")
        if not equals:
            raise ServingError(
                f"--grpc_channel_arguments takes comma-separated name=value pairs. Received: {argument!r}"
            )
        options[name] = int(value) if re.fullmatch(r"-?\d+", value) else value
        if isinstance(options[name], int) and abs(int(value)) > _LARGEST:
            raise ServingError(f"--grpc_channel_arguments takes numbers up to {_LARGEST}. Received: {argument!r}")
    return options
