"""Arrays of several requests joined along axis 0, and outputs split again."""

from collections.abc import Sequence

import numpy as np
from grpc import StatusCode

from export.server.status import RequestError, invalid_argument


def join(name: str, arrays: Sequence[np.ndarray], rows: int, pad_inner: bool) -> np.ndarray:
    """Joins the same input of several requests.

    Args:
        name: The input's tensor name, for errors.
        arrays: Each [its rows, …].
        rows: How many rows the result has; a real row fills what is missing, as that is surely valid.
        pad_inner: Whether different inner shapes are padded to the largest with zeros or empty strings.

    Returns:
        An array [rows, …].

    Raises:
        RequestError: The inner shapes differ and may not be padded, or differ in rank.
    """
    if len({array.shape[1:] for array in arrays}) > 1:
        arrays = _pad_inner(name, arrays, pad_inner)
    missing = rows - sum(map(len, arrays))
    filling = next((array[:1] for array in reversed(arrays) if len(array)), None)
    if missing and filling is not None:
        arrays = [*arrays, np.repeat(filling, missing, axis=0)]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def split(outputs: Sequence[np.ndarray], sizes: Sequence[int], rows: int) -> list[list[np.ndarray]]:
    """Splits the outputs of a batch.

    Args:
        outputs: Each [rows, …].
        sizes: Rows of each request.
        rows: Rows of the batch, padding included.

    Returns:
        The outputs of each request.

    Raises:
        RequestError: FAILED_PRECONDITION if an output does not have a row for each row of the inputs.
    """
    if sum(sizes) == 0:
        rows = 0  # There was no row to pad with.
    for output in outputs:
        if output.ndim == 0:
            raise RequestError(StatusCode.FAILED_PRECONDITION, "Batched output tensor has 0 dimensions")
        if len(output) != rows:
            raise RequestError(
                StatusCode.FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
                "input tensors",
            )
    ends = np.cumsum(sizes)
    return [[output[end - size : end] for output in outputs] for size, end in zip(sizes, ends, strict=True)]


def _pad_inner(name: str, arrays: Sequence[np.ndarray], allowed: bool) -> list[np.ndarray]:
    if not allowed:
        raise RequestError(
            StatusCode.FAILED_PRECONDITION,
            f"Tensors with name '{name}' from different tasks have different shapes and padding is turned off. "
            "Set pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal "
            "dimensions starting with the first dim.",
        )
    if len({array.ndim for array in arrays}) > 1:
        raise invalid_argument(f"Tensors with name '{name}' from different tasks have different numbers of dimensions")
    largest = np.max([array.shape[1:] for array in arrays], axis=0)
    padded = []
    for array in arrays:
        widths = [(0, 0), *((0, wanted - size) for wanted, size in zip(largest, array.shape[1:], strict=True))]
        empty = b"" if array.dtype.hasobject else np.zeros((), array.dtype)
        padded.append(np.pad(array, widths, constant_values=empty))
    return padded
