"""The one place where a request is measured and limited, before anything of it is expanded."""

from typing import Any

from export.server.errors import invalid_argument
from export.wire.protos import input_pb2
from export.wire.tensors import expanded_size

_LARGEST_RANK = 254  # of TensorFlow's tensors
_EXAMPLE_BYTES = 64  # of an example beside its content, as Python and TensorFlow keep it


def check_size(request: Any, max_rows: int, max_bytes: int) -> None:
    """Raises INVALID_ARGUMENT for a request that has more rows or bytes, expanded, than allowed.

    Little in a message can stand for much: a tensor whose shape is larger than its values repeats the last of them,
    and a context is repeated for each example.
    """
    if hasattr(request, "inputs"):
        if any(len(tensor.tensor_shape.dim) > _LARGEST_RANK for tensor in request.inputs.values()):
            raise invalid_argument(f"A tensor has at most {_LARGEST_RANK} dimensions.")
        sizes = [expanded_size(tensor) for tensor in request.inputs.values()]
    else:
        sizes = [_examples_size(request.input)]
    _check("rows", max((rows for rows, _ in sizes), default=0), max_rows)
    _check("bytes", sum(size for _, size in sizes), max_bytes)


def count_examples(examples: input_pb2.Input) -> int:
    """Returns the number of the request's examples."""
    return len(examples.example_list.examples) or len(examples.example_list_with_context.examples)


def _examples_size(examples: input_pb2.Input) -> tuple[int, int]:
    rows, context = count_examples(examples), examples.example_list_with_context.context.ByteSize()
    return rows, examples.ByteSize() + rows * (context + _EXAMPLE_BYTES)


def _check(unit: str, count: int, most: int) -> None:
    if count > most:
        parts = f"send it in parts, or raise --max_request_{unit}"
        raise invalid_argument(f"The request has {count} {unit}, expanded, of at most {most}: {parts}.")
