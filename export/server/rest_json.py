"""JSON to and from arrays, in the stock server's row and column formats."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from export.server.signatures import input_type
from export.server.status import invalid_argument
from export.wire.protos import meta_graph_pb2
from export.wire.tensors import to_list, type_name, type_of

_BYTES_SUFFIX = "_bytes"  # outputs named so hold bytes rather than text
_JSON_FLOATS = (np.float32, np.float64)
_LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in _JSON_FLOATS}
_LARGEST_WHOLE = {np.dtype(kind): (1 << np.finfo(kind).nmant + 1) - 1 for kind in _JSON_FLOATS}
_WHOLE = range(-(1 << 63), 1 << 64)  # further numbers are floats, whole or not
_DEEPEST = 32  # dimensions
_LONGEST_QUOTE = 100


def read_inputs(document: Mapping[str, Any], signature: meta_graph_pb2.SignatureDef) -> dict[str, np.ndarray]:
    """Reads the inputs of a predict request.

    Args:
        document: The request's JSON object: `instances` is a list with one item per row, `inputs` has all rows
            of an input together. Where the signature has one input its name may be left out.
        signature: Names and types of the inputs.

    Returns:
        Arrays by input name.

    Raises:
        RequestError: INVALID_ARGUMENT, saying what does not fit.
    """
    if ("instances" in document) == ("inputs" in document):
        many = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist"
        raise invalid_argument(many if "inputs" in document else "Missing 'inputs' or 'instances' key")
    if not signature.inputs:
        name = document.get("signature_name") or "DEFAULT"
        raise invalid_argument(f"Failed to get input map for signature: {name}")
    if "inputs" in document:
        columns = _columns(document["inputs"], signature)
    else:
        columns = _columns_from_rows(document["instances"], signature)
    return {name: _read_tensor(name, value, signature) for name, value in columns.items()}


def write_outputs(outputs: Mapping[str, np.ndarray], rows: bool) -> dict[str, Any]:
    """Writes the answer to a predict request.

    Args:
        outputs: Arrays by output name.
        rows: Whether to answer in the row format (`predictions`) or the column format (`outputs`).

    Returns:
        A document for `json.dumps`. A single output stands without its name.

    Raises:
        RequestError: INVALID_ARGUMENT for a type that JSON cannot carry, or rows of different number.
    """
    columns = {name: _write_tensor(name, array) for name, array in outputs.items()}
    if not rows:
        return {"outputs": columns if len(columns) > 1 else next(iter(columns.values()))}
    _check_rows(outputs)
    if len(columns) == 1:
        return {"predictions": next(iter(columns.values()))}
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}


def is_base64(value: Any) -> bool:
    """Tells whether a JSON value stands for bytes: `{"b64": "…"}`."""
    return isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str)


def read_base64(value: Mapping[str, str]) -> bytes:
    """Returns the bytes that `{"b64": "…"}` stands for.

    Raises:
        RequestError: INVALID_ARGUMENT for what is not base64.
    """
    try:
        return base64.b64decode(value["b64"], validate=True)
    except ValueError as error:
        raise invalid_argument("Unable to base64 decode") from error


def json_type(value: Any) -> str:
    """Returns the name that JSON has for a value's type."""
    if value is None or isinstance(value, bool):
        return {None: "Null", False: "False", True: "True"}[value]
    names = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"}
    return names[type(value)]


def quote(value: Any) -> str:
    """Returns the beginning of a JSON value as text, for messages."""
    try:
        return json.dumps(value, ensure_ascii=False)[:_LONGEST_QUOTE]
    except RecursionError:  # it was just shallow enough to be read
        return json_type(value)


def _columns(value: Any, signature: meta_graph_pb2.SignatureDef) -> Mapping[str, Any]:
    if _is_object(value):
        for name in signature.inputs:
            if name not in value and name not in signature.defaults:
                raise invalid_argument(f"Missing named input: {name} in 'inputs' object.")
        return {name: value[name] for name in signature.inputs if name in value}
    return {_only_input(signature, "inputs is a plain value/list, but expecting an object"): value}


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_base64(value)


def _columns_from_rows(rows: Any, signature: meta_graph_pb2.SignatureDef) -> Mapping[str, Any]:
    if not isinstance(rows, list):
        raise invalid_argument("Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid_argument("No values in 'instances' array")
    if _is_object(rows[0]):
        names = set(rows[0])
        for position, row in enumerate(rows):
            _check_row(position, row, names, signature)
        return {name: [row[name] for row in rows] for name in names}
    name = _only_input(signature, "instances is a plain list, but expecting list of objects")
    for position, row in enumerate(rows):
        if _is_object(row):
            raise invalid_argument(f"Expecting value/list but got object at item {position} of input list")
    return {name: rows}


def _check_row(position: int, row: Any, expected: set[str], signature: meta_graph_pb2.SignatureDef) -> None:
    if not _is_object(row):
        raise invalid_argument(f"Expecting object but got list at item {position} of input list")
    for name in row:
        if name not in signature.inputs:
            raise invalid_argument(
                f"Failed to process element: {position} key: {name} of 'instances' list. "
                f"Error: INVALID_ARGUMENT: JSON object: does not have named input: {name}"
            )
    if set(row) != expected or not set(signature.inputs) - set(signature.defaults) <= expected:
        raise invalid_argument(
            f"Failed to process element: {position} of 'instances' list. JSON object: {quote(row)} "
            f"keys must be equal to: {','.join(sorted(signature.inputs))}"
        )


def _only_input(signature: meta_graph_pb2.SignatureDef, complaint: str) -> str:
    if len(signature.inputs) != 1:
        raise invalid_argument(f"{complaint} as multiple input tensors required as per tensorinfo_map")
    return next(iter(signature.inputs))


def _read_tensor(name: str, value: Any, signature: meta_graph_pb2.SignatureDef) -> np.ndarray:
    info = signature.inputs[name]
    dtype = input_type(name, info)
    shape = _shape(value)
    leaves: list = []
    _collect(value, shape, leaves)
    try:
        values = [_read_leaf(leaf, dtype) for leaf in leaves]
        array = np.empty(len(values), dtype)
        array[:] = values
    except (ValueError, OverflowError) as error:
        wrong = next((leaf for leaf in leaves if not _fits(leaf, dtype)), None)
        raise invalid_argument(
            f'input "{name}": JSON Value: {quote(wrong)} Type: {json_type(wrong)} '
            f"is not of expected type: {type_name(info.dtype)}"
        ) from error
    return array.reshape(shape)


def _fits(value: Any, dtype: np.dtype) -> bool:
    try:
        _read_leaf(value, dtype)
    except (ValueError, OverflowError):
        return False
    return True


def _shape(value: Any) -> list[int]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    if len(shape) > _DEEPEST:
        raise invalid_argument(f"JSON lists are nested {len(shape)} deep; at most {_DEEPEST} are allowed")
    return shape


def _collect(value: Any, shape: list[int], leaves: list) -> None:
    """Appends the innermost values in order; every list of one level must be of the same length."""
    if isinstance(value, list) != bool(shape) or shape and len(value) != shape[0]:
        raise invalid_argument("JSON lists are not of one shape: every list of one level needs the same length")
    if not shape:
        leaves.append(value)
        return
    for item in value:
        _collect(item, shape[1:], leaves)


def _read_leaf(value: Any, dtype: np.dtype) -> Any:
    if dtype.hasobject:
        return _read_string(value)
    if isinstance(value, bool) != (dtype.kind == "b") or not isinstance(value, int | float):
        raise ValueError
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not isinstance(value, int) or not limits.min <= value <= limits.max:
            raise ValueError
    elif dtype in _LARGEST_WHOLE and not _is_lossless(value, dtype):
        kind = "float" if dtype == np.float32 else "double"
        raise invalid_argument(f"Cannot convert JSON value: {quote(value)} to {kind} without loss of precision.")
    return value


def _is_lossless(value: int | float, dtype: np.dtype) -> bool:
    if isinstance(value, int) and value in _WHOLE:
        return abs(value) <= _LARGEST_WHOLE[dtype]
    return not math.isfinite(value) or abs(value) <= _LARGEST[dtype]


def _read_string(value: Any) -> bytes:
    if is_base64(value):
        return read_base64(value)
    if isinstance(value, dict):
        raise invalid_argument(f"JSON Value: {quote(value)} not formatted correctly for base64 data")
    if not isinstance(value, str):
        raise ValueError
    return value.encode()


def _check_rows(outputs: Mapping[str, np.ndarray]) -> None:
    size = None
    for name, array in sorted(outputs.items()):
        if array.ndim == 0:
            raise invalid_argument(f"Tensor name: {name} has no shape information ")
        if size not in (None, len(array)):
            raise invalid_argument(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {size}")
        size = len(array)


def _write_tensor(name: str, array: np.ndarray) -> Any:
    if array.dtype.hasobject:
        return np.frompyfunc(_write_bytes if name.endswith(_BYTES_SUFFIX) else _write_text, 1, 1)(array).tolist()
    if array.dtype not in _JSON_FLOATS and array.dtype.kind not in "iub":
        raise invalid_argument(f"Failed to write JSON value for tensor type: {type_of(array)}")
    return to_list(array)


def _write_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _write_bytes(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}
