"""The stock server's configuration files: protocol buffers in text format.

The official packages contain the messages for model lists and sessions, but not those for TLS, monitoring and batching.
The latter have few fields and are declared here.
"""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

from export.server.errors import ServingError
from export.wire.protos import config_pb2, model_server_config_pb2

_LARGEST = 1 << 24  # bytes
_OFFICIAL = {
    "model_config_file": model_server_config_pb2.ModelServerConfig,
    "tensorflow_session_config_file": config_pb2.ConfigProto,
}
_DECLARED = {
    "ssl_config_file": "SSLConfig",
    "monitoring_config_file": "MonitoringConfig",
    "batching_parameters_file": "BatchingParameters",
}
# Field names and types; a star means a repeated field. The text format does not use field numbers.
_INT64, _BOOL, _STRING = (f"google.protobuf.{kind}Value" for kind in ("Int64", "Bool", "String"))
_MESSAGES = {
    "SSLConfig": "server_key:string server_cert:string custom_ca:string client_verify:bool",
    "PrometheusConfig": "enable:bool path:string",
    "MonitoringConfig": "prometheus_config:tensorflow.serving.PrometheusConfig",
    "BatchingParameters": (
        f"max_batch_size:{_INT64} batch_timeout_micros:{_INT64} max_enqueued_batches:{_INT64} "
        f"num_batch_threads:{_INT64} thread_pool_name:{_STRING} allowed_batch_sizes:int64* "
        f"pad_variable_length_inputs:bool enable_large_batch_splitting:{_BOOL} max_execution_batch_size:{_INT64}"
    ),
}


def _field(number: int, declaration: str) -> descriptor_pb2.FieldDescriptorProto:
    name, kind = declaration.removesuffix("*").split(":")
    field = descriptor_pb2.FieldDescriptorProto(name=name, number=number)
    field.label = field.LABEL_REPEATED if declaration.endswith("*") else field.LABEL_OPTIONAL
    if "." in kind:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{kind}"
    else:
        field.type = field.Type.Value(f"TYPE_{kind.upper()}")
    return field


@cache
def message_class(name: str) -> Any:
    """Returns the class of a message, from a separate pool, where no name conflicts with an official message."""
    file = descriptor_pb2.FileDescriptorProto(name="config_files.proto", package="tensorflow.serving", syntax="proto3")
    file.dependency.append("google/protobuf/wrappers.proto")
    for message, fields in _MESSAGES.items():
        declared = [_field(number, field) for number, field in enumerate(fields.split(), start=1)]
        file.message_type.add(name=message, field=declared)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))


def read_config(flag: str, path: str) -> Any:
    """Reads the file of a flag such as `"model_config_file"`, which determines the type of the message.

    Raises:
        ServingError: The file cannot be read or is not such a message.
    """
    message = (_OFFICIAL.get(flag) or message_class(_DECLARED[flag]))()
    try:
        with Path(path).open("rb") as file:
            return text_format.Parse(file.read(_LARGEST), message)
    except OSError as error:
        raise ServingError(f"--{flag} {path} cannot be read ({error.strerror}).") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        kind = message.DESCRIPTOR.full_name
        raise ServingError(f"Error parsing text-format {kind}: --{flag} {path}: {error}") from error
