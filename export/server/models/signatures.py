"""The rules of signatures: which of them are for requests, and which inputs and outputs a request may name.

Rules, status codes and most messages are the stock server's.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from grpc import StatusCode

from export.server.errors import RequestError, invalid_argument
from export.wire.protos import meta_graph_pb2, types_pb2
from export.wire.tensors import numpy_type, to_array, type_name, type_of


def answers_requests(signature: meta_graph_pb2.SignatureDef) -> bool:
    """Returns whether a signature is for requests; the loader's own, such as `__saved_model_init_op`, are not."""
    tensors = [*signature.inputs.values(), *signature.outputs.values()]
    named = all(info.WhichOneof("encoding") == "name" for info in tensors)
    return named and all(info.dtype != types_pb2.DT_INVALID for info in tensors) and bool(signature.outputs)


def choose_feeds(signature: meta_graph_pb2.SignatureDef, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Checks a request's inputs and returns them, or their defaults, by tensor name in the graph."""
    _check_names(set(inputs), set(signature.inputs), set(signature.inputs) - set(signature.defaults))
    feeds = {}
    # Like the stock server, this numbers a graph's inputs in the order of their tensor names.
    for position, (name, info) in enumerate(sorted(signature.inputs.items(), key=lambda item: item[1].name)):
        array = inputs[name] if name in inputs else to_array(signature.defaults[name])
        _check_type(position, name, info, array)
        feeds[info.name] = array
    return feeds


def choose_fetches(signature: meta_graph_pb2.SignatureDef, output_filter: Sequence[str]) -> dict[str, str]:
    """Returns the tensor names of the requested outputs; of all outputs if `output_filter` is empty."""
    for position, name in enumerate(output_filter):
        if name not in signature.outputs:
            raise invalid_argument(
                f"output tensor alias not found in signature: {name} "
                f"Outputs expected to be in the set {_join(signature.outputs)}."
            )
        if name in output_filter[:position]:
            raise invalid_argument(f"duplicate output tensor alias: {name}")
    return {name: signature.outputs[name].name for name in output_filter or sorted(signature.outputs)}


def input_type(name: str, info: meta_graph_pb2.TensorInfo) -> np.dtype:
    """Returns the NumPy type of an input; raises UNIMPLEMENTED for unsupported types."""
    try:
        return numpy_type(info.dtype)
    except ValueError as error:
        raise RequestError(StatusCode.UNIMPLEMENTED, f'input tensor "{name}": {error}') from error


def _check_names(sent: set[str], expected: set[str], required: set[str]) -> None:
    if required <= sent <= expected:
        return
    if len(sent) == len(expected):
        raise invalid_argument(
            f"input tensor alias not found in signature: {min(sent - expected)}. "
            f"Inputs expected to be in the set {_join(expected)}."
        )
    raise invalid_argument(
        f"input size does not match signature: {len(sent)}!={len(expected)} len({_join(sent)}) != "
        f"len({_join(expected)}). Sent extra: {_join(sent - expected)}. Missing but required: {_join(required - sent)}."
    )


def _check_type(position: int, name: str, info: meta_graph_pb2.TensorInfo, array: np.ndarray) -> None:
    if array.dtype != input_type(name, info):
        raise invalid_argument(
            f"Expects arg[{position}] to be {type_name(info.dtype)} but {type_of(array)} is provided (input {name})"
        )


def _join(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
