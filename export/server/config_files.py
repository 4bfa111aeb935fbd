"""The stock server's configuration files: protocol buffers in text form.

The official packages carry the messages for lists of models, but not those for TLS, monitoring and batching. Their
fields are few, so they are declared here.
"""

from functools import cache
from pathlib import Path
from typing import TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from google.protobuf.message import Message

from export.wire.protos import model_server_config_pb2
from zoo.errors import InputError

_Message = TypeVar("_Message", bound=Message)
_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "tensorflow.serving"
_LARGEST = 1 << 24

# Field names and types; a capital letter means a message, a star a repeated field. Numbers do not matter in text.
_FIELDS = {
    "SSLConfig": "server_key:string server_cert:string custom_ca:string client_verify:bool",
    "PrometheusConfig": "enable:bool path:string",
    "MonitoringConfig": f"prometheus_config:{_PACKAGE}.PrometheusConfig",
    "BatchingParameters": (
        "max_batch_size:google.protobuf.Int64Value batch_timeout_micros:google.protobuf.Int64Value "
        "max_enqueued_batches:google.protobuf.Int64Value num_batch_threads:google.protobuf.Int64Value "
        "thread_pool_name:google.protobuf.StringValue allowed_batch_sizes:int64* pad_variable_length_inputs:bool "
        "enable_large_batch_splitting:google.protobuf.BoolValue max_execution_batch_size:google.protobuf.Int64Value"
    ),
}
_TYPES = {"string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int64": _Field.TYPE_INT64}


@cache
def _messages() -> dict[str, type[Message]]:
    """Builds the message classes in a pool of their own, so that they cannot clash with official ones."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="config_files.proto", package=_PACKAGE, syntax="proto3", dependency=["google/protobuf/wrappers.proto"]
    )
    for message, fields in _FIELDS.items():
        declared = file.message_type.add(name=message)
        for number, field in enumerate(fields.split(), start=1):
            name, kind = field.split(":")
            label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            entry = declared.field.add(name=name, number=number, label=label)
            if kind in _TYPES:
                entry.type = _TYPES[kind]
            else:
                entry.type, entry.type_name = _Field.TYPE_MESSAGE, f".{kind}"
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS}


def read_models(path: str) -> model_server_config_pb2.ModelServerConfig:
    """Reads `--model_config_file`.

    Raises:
        InputError: The file cannot be read or is no such configuration.
    """
    return _read(path, model_server_config_pb2.ModelServerConfig(), "--model_config_file")


def read_ssl(path: str) -> Message:
    """Reads `--ssl_config_file`: `server_key`, `server_cert`, `custom_ca` (the PEM texts) and `client_verify`.

    Raises:
        InputError: The file cannot be read or is no such configuration.
    """
    return _read(path, _messages()["SSLConfig"](), "--ssl_config_file")


def read_monitoring(path: str) -> Message:
    """Reads `--monitoring_config_file`: `prometheus_config { enable path }`.

    Raises:
        InputError: The file cannot be read or is no such configuration.
    """
    return _read(path, _messages()["MonitoringConfig"](), "--monitoring_config_file")


def read_batching(path: str) -> Message:
    """Reads `--batching_parameters_file`.

    Raises:
        InputError: The file cannot be read or is no such configuration.
    """
    return _read(path, _messages()["BatchingParameters"](), "--batching_parameters_file")


def _read(path: str, message: _Message, flag: str) -> _Message:
    try:
        with Path(path).open("rb") as file:
            return text_format.Parse(file.read(_LARGEST), message)
    except OSError as error:
        raise InputError(f"{flag} {path} cannot be read ({error.strerror}).") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        kind = message.DESCRIPTOR.name
        raise InputError(f"{flag} {path} is not a {kind} in protobuf's text form: {error}") from error
