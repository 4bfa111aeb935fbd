"""The flags of `tensorflow_model_server` and what they are set to: one field, one flag."""

import argparse
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from zoo.cli import ArgumentParser
from zoo.errors import InputError

# Flags of the stock server that change nothing here: other runtimes and devices, its threads, caches and profiler.
WITHOUT_EFFECT = frozenset(
    """enable_profiler experimental_cc_shared_lib flush_filesystem_caches mixed_precision num_load_threads
    num_tflite_interpreters_per_pool num_tflite_pools num_unload_threads platform_config_file prefer_tflite_model
    remove_unused_fields_from_bundle_metagraph server_shutdown_timeout_in_ms skip_initialize_tpu
    thread_pool_factory_config_file total_model_memory_limit_bytes use_alts_credentials""".split()
)

_LARGEST = 2**31 - 1  # of an int32, as which the stock server reads most numbers
_THREADS = 10_000


def _bool(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise ArgumentTypeError(f"expected true or false. Received: {text!r}")
    return values[text.lower()]


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise ArgumentTypeError(f"a port is a number from 0 to 65535. Received: {text!r}")
    return int(text)


def _setting(
    default: Any,
    text: str,
    parse: Callable[[str], Any] = str,
    within: tuple[float, float] = (0, _LARGEST),
    stock: bool = True,
) -> Any:
    return field(default=default, metadata={"help": text, "parse": parse, "within": within, "stock": stock})


def _own(
    default: Any, text: str, parse: Callable[[str], Any] = str, within: tuple[float, float] = (0, _LARGEST)
) -> Any:
    return _setting(default, f"{text} (not a flag of the stock server)", parse, within, stock=False)


_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Settings:
    """What a server was asked to do; names, meaning and defaults are the stock server's unless a comment says so."""

    # Which models
    model_name: str = _setting("default", "the name that requests give; ignored with --model_config_file")
    model_base_path: str = _setting("", "the directory that holds the numbered versions")
    model_config_file: str = _setting("", "a ModelServerConfig in text form: several models, version policies, labels")
    model_config_file_poll_wait_seconds: int = _setting(0, "how often that file is read again; 0 means never", int)
    file_system_poll_wait_seconds: float = _setting(1.0, "how often versions are looked for; 0 means once", float)
    allow_version_labels_for_unavailable_models: bool = _setting(
        False, "labels may name versions that are not loaded", _bool
    )
    saved_model_tags: str = _setting("serve", "tags of the graph to load, with commas between them")
    # A version that could not be loaded is tried again as soon as its files change, so waiting is left to who asks.
    max_num_load_retries: int = _setting(0, "how often a load that failed is tried again at once", int)
    load_retry_interval_micros: int = _setting(
        60_000_000, "how long to wait before each of these; below 0 means not at all", int, within=(-_LARGEST, 10**15)
    )
    enable_model_warmup: bool = _setting(True, "replay the model's recorded requests before it answers", _bool)
    num_request_iterations_for_warmup: int = _setting(
        0, "how often each of them is replayed, if above 0", int, within=(-_LARGEST, _LARGEST)
    )
    enable_signature_method_name_check: bool = _setting(False, "refuse signatures made for another method", _bool)

    # Where to listen. With the stock server 0 means none; here 0 picks a free port, so that tests and demos can run.
    port: int = _setting(8500, "gRPC port; 0 picks a free one, or none beside --grpc_socket_path", _port)
    grpc_socket_path: str = _setting("", "a UNIX socket to answer gRPC on as well")
    rest_api_port: int | None = _setting(None, "REST port; 0 picks a free one", _port)
    rest_api_num_threads: int = _setting(max(16, 4 * _CORES), "threads that answer REST", int, within=(1, _THREADS))
    rest_api_timeout_in_ms: int = _setting(
        30_000, "how long a REST call may take; 0 or less means any time", int, within=(-_LARGEST, _LARGEST)
    )
    rest_api_enable_cors_support: bool = _setting(False, "send CORS headers", _bool)
    # Threads wait while TensorFlow computes, so more of them than cores keep batching supplied.
    grpc_max_threads: int = _setting(max(32, 4 * _CORES), "threads that answer gRPC", int, within=(1, _THREADS))
    grpc_channel_arguments: str = _setting("", "options of the gRPC server, as in grpc.max_connection_age_ms=2000,…")
    ssl_config_file: str = _setting("", "an SSLConfig in text form: gRPC over TLS")
    enable_grpc_healthcheck_service: bool = _setting(False, "answer grpc.health.v1", _bool)
    monitoring_config_file: str = _setting("", "a MonitoringConfig in text form: metrics on the REST port")

    # How to compute
    enable_batching: bool = _setting(False, "run requests of several callers together", _bool)
    batching_parameters_file: str = _setting("", "BatchingParameters in text form")
    enable_per_model_batching_parameters: bool = _setting(
        False, "read them from batching_params.pbtxt beside saved_model.pb instead", _bool
    )
    enable_serialization_as_tensor_content: bool = _setting(False, "answer Predict with tensor_content", _bool)
    tensorflow_session_parallelism: int = _setting(
        0, "threads inside and between ops; 0 means as many as cores", int, within=(0, _THREADS)
    )
    tensorflow_intra_op_parallelism: int = _setting(0, "threads inside an op", int, within=(0, _THREADS))
    tensorflow_inter_op_parallelism: int = _setting(
        0, "threads between ops; -1 means that of the request", int, within=(-1, _THREADS)
    )
    per_process_gpu_memory_fraction: float = _setting(
        0.0, "the part of a GPU's memory to take; 0 grows", float, within=(0, 1)
    )
    xla_cpu_compilation_enabled: bool = _setting(False, "let models use XLA; without it they get an error", _bool)
    xla_gpu_compilation_enabled: bool = _setting(False, "the same", _bool)
    tensorflow_session_config_file: str = _setting("", "a ConfigProto in text form to start from")

    host: str = _own("0.0.0.0", "the address to listen on")
    max_queued_requests: int = _own(
        1000, "gRPC calls beyond these are refused with RESOURCE_EXHAUSTED", int, within=(1, _LARGEST)
    )
    drain_seconds: float = _own(20.0, "how long calls in progress may take after SIGTERM", float)
    log_level: str = _own("warning", "least severe events to log: debug, info, warning, error")
    log_requests: bool = _own(False, "log one line for each request, without what it says", _bool)
    log_contents: bool = _own(False, "log also what failing requests say", _bool)


class Command(NamedTuple):
    """A command line, understood.

    Attributes:
        settings: The flags with a meaning here.
        without_effect: Names of stock flags that were given and have none.
        for_stock: What was given, spelled for the stock server, which wants equals signs and absolute paths.
        not_for_stock: Names of flags that were given and that the stock server does not have.
        show_version: Whether only the version is asked for.
    """

    settings: Settings
    without_effect: list[str]
    for_stock: list[str]
    not_for_stock: list[str]
    show_version: bool


def read_command(argv: Sequence[str] | None, prog: str, description: str, for_stock: bool = False) -> Command:
    """Reads a command line; both `--flag=value` and `--flag value` are understood.

    Ends the process with status 2 and one line on bad usage.

    Args:
        argv: Arguments without the program's name; `None` means those of the process.
        prog: The program's name.
        description: What `--help` says it does.
        for_stock: Whether the stock server is to judge what was given; flags unknown here are passed on to it.
    """
    parser = _parser(prog, description)
    found, unknown = parser.parse_known_args(argv)
    if unknown and not for_stock:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given = vars(found)
    show_version = given.pop("version", False)
    own = {item.name for item in fields(Settings) if not item.metadata["stock"]}
    settings = Settings(**{name: value for name, value in given.items() if name not in WITHOUT_EFFECT})
    if not (show_version or for_stock):
        _check(parser, settings)
    return Command(
        settings=settings,
        without_effect=sorted(name for name in given if name in WITHOUT_EFFECT),
        for_stock=[*(_spell(name, value) for name, value in given.items() if name not in own), *unknown],
        not_for_stock=sorted(name for name in given if name in own),
        show_version=show_version,
    )


def channel_arguments(text: str) -> dict[str, int | str]:
    """Returns `--grpc_channel_arguments` as gRPC takes them; whole numbers become numbers.

    Raises:
        InputError: One of them is not `name=value`, or a number is too large.
    """
    options: dict[str, int | str] = {}
    for argument in filter(None, text.split(",")):
        name, equals, value = argument.partition("=")
        if not equals:
            raise InputError(f"--grpc_channel_arguments takes name=value, with commas between. Received: {argument!r}")
        options[name] = int(value) if re.fullmatch(r"-?\d+", value) else value
        if isinstance(options[name], int) and abs(int(value)) > _LARGEST:
            raise InputError(f"--grpc_channel_arguments takes numbers up to {_LARGEST}. Received: {argument!r}")
    return options


def _parser(prog: str, description: str) -> ArgumentParser:
    # Flags that are not given are not in the result either: their defaults stand in `Settings`.
    parser = ArgumentParser(prog=prog, description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for item in fields(Settings):
        parse, text = item.metadata["parse"], item.metadata["help"].replace("%", "%%")
        _add(parser, item.name, parse, text if item.default in ("", None) else f"{text} (default: {item.default})")
    for name in sorted(WITHOUT_EFFECT):
        _add(parser, name, str, "taken for the stock server's sake; changes nothing here")
    parser.add_argument("--version", nargs="?", const=True, type=_bool, help="print the version")
    return parser


def _add(parser: ArgumentParser, name: str, parse: Callable[[str], Any], text: str) -> None:
    if parse is _bool or name in WITHOUT_EFFECT:  # which of those take a value is of no interest here
        parser.add_argument(f"--{name}", nargs="?", const=True, type=parse, help=text)
    else:
        parser.add_argument(f"--{name}", type=parse, help=text)


def _check(parser: ArgumentParser, settings: Settings) -> None:
    if not (settings.model_base_path or settings.model_config_file):
        parser.error("--model_base_path or --model_config_file is required")
    if settings.batching_parameters_file and not settings.enable_batching:
        parser.error("--batching_parameters_file is of no use without --enable_batching")
    if settings.log_level not in ("debug", "info", "warning", "error"):
        parser.error(f"--log_level is debug, info, warning or error. Received: {settings.log_level!r}")
    for item in fields(settings):
        value, (least, most) = getattr(settings, item.name), item.metadata["within"]
        if item.metadata["parse"] in (int, float) and not least <= value <= most:
            parser.error(f"--{item.name} must be {least} to {most}. Received: {value}")


def _spell(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}={str(value).lower()}"
    if name == "model_base_path" and "://" not in value:
        value = os.path.abspath(value)
    if isinstance(value, float) and value.is_integer():  # most of what is a float here is a whole number there
        value = int(value)
    return f"--{name}={value}"
