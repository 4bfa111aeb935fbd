"""Checks the size of a request before any part of it is expanded."""

from dataclasses import dataclass
from typing import Any

from export.server.errors import invalid_argument
from export.wire.protos import input_pb2
from export.wire.tensors import expanded_size

# TensorFlow aborts the process for strings of more than 32 dimensions, and models add some to those of the inputs.
_LARGEST_RANK = 24
_EXAMPLE_BYTES = 64  # overhead of an example in Python and TensorFlow


@dataclass(frozen=True)
class Limits:
    """The maximum size of a request after its expansion."""

    rows: int
    bytes: int

    def check_request(self, request: Any) -> None:
        """Raises INVALID_ARGUMENT for a request of too many rows or bytes.

        A small message can expand to a large request: a tensor with fewer values than its shape repeats the last
        value, and a context is repeated for each example.
        """
        if hasattr(request, "inputs"):
            for tensor in request.inputs.values():
                self.check_rank(len(tensor.tensor_shape.dim))
            sizes = [expanded_size(tensor) for tensor in request.inputs.values()]
        else:
            sizes = [_examples_size(request.input)]
        self.check(max((rows for rows, _ in sizes), default=0), sum(size for _, size in sizes))

    @staticmethod
    def check_rank(rank: int) -> None:
        """Raises INVALID_ARGUMENT for a tensor of too many dimensions."""
        if rank > _LARGEST_RANK:
            raise invalid_argument(f"A tensor must have at most {_LARGEST_RANK} dimensions. Received: {rank}.")

    def check(self, rows: int, size: int = 0) -> None:
        """Raises INVALID_ARGUMENT for too many rows or bytes."""
        for unit, count, most in (("rows", rows, self.rows), ("bytes", size, self.bytes)):
            if count > most:
                parts = f"send it in parts, or raise --max_request_{unit}"
                raise invalid_argument(f"The request has {count} {unit}, expanded; the limit is {most}: {parts}.")


def count_examples(examples: input_pb2.Input) -> int:
    """Returns the number of the request's examples."""
    return len(examples.example_list.examples) or len(examples.example_list_with_context.examples)


def _examples_size(examples: input_pb2.Input) -> tuple[int, int]:
    rows, context = count_examples(examples), examples.example_list_with_context.context.ByteSize()
    return rows, examples.ByteSize() + rows * (context + _EXAMPLE_BYTES)
