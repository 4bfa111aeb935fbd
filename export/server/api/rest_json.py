"""Requests and responses in the stock server's JSON: rows, columns and examples."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from export.server.errors import invalid_argument
from export.server.inference.limits import Limits
from export.server.models.signatures import input_type
from export.wire.protos import classification_pb2, example_pb2, input_pb2, meta_graph_pb2, regression_pb2
from export.wire.tensors import as_text, to_list, type_name, type_of
from export.wire.text import decode_base64

Signature: TypeAlias = meta_graph_pb2.SignatureDef
_BYTES_SUFFIX = "_bytes"  # outputs with this suffix are bytes instead of text
# Name, largest number, and the smallest integer whose successor cannot be represented.
_FLOATS = {
    np.dtype(kind): (name, float(np.finfo(kind).max), 1 << np.finfo(kind).nmant + 1)
    for name, kind in (("float", np.float32), ("double", np.float64))
}
_INTEGERS = range(-(1 << 63), 1 << 64)  # integers outside of this range are read as floats
_INT64 = range(-(1 << 63), 1 << 63)
_LONGEST_QUOTE = 100


def read_inputs(document: Mapping[str, Any], signature: Signature, limits: Limits) -> dict[str, np.ndarray]:
    """Reads the inputs of a predict request as arrays by name.

    `instances` is a list with one item per row; `inputs` contains all rows by input. If the signature has one input,
    its name is optional.
    """
    if "instances" in document and "inputs" in document:
        raise invalid_argument("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist")
    if "inputs" in document:
        columns = _columns(document["inputs"], signature)
    elif "instances" in document:
        columns = _columns_from_rows(document["instances"], signature, limits)
    else:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    return {name: _read_tensor(name, value, signature.inputs[name], limits) for name, value in columns.items()}


def write_outputs(outputs: Mapping[str, np.ndarray], as_rows: bool) -> dict[str, Any]:
    """Returns the response to a predict request, in the row format (`predictions`) or the column format (`outputs`).

    A single output is written without its name.
    """
    columns = {name: _write_tensor(name, array) for name, array in sorted(outputs.items())}
    if as_rows:
        _check_rows(outputs)
    if len(columns) == 1:
        return {"predictions" if as_rows else "outputs": next(iter(columns.values()))}
    if not as_rows:
        return {"outputs": columns}
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}


def read_examples(document: Mapping[str, Any], limits: Limits) -> input_pb2.Input:
    """Reads the `examples` of a request and their common `context`, if any."""
    if "examples" not in document:
        raise invalid_argument("When method is classify, key 'examples' is expected and was not found")
    rows = document["examples"]
    if not isinstance(rows, list):
        raise invalid_argument("Expecting 'examples' value to be an list/array")
    if not rows:
        raise invalid_argument("'examples' value is an empty array")
    limits.check(len(rows))
    examples = [_read_example(row) for row in rows]
    if "context" not in document:
        return input_pb2.Input(example_list={"examples": examples})
    context = _read_example(document["context"])
    return input_pb2.Input(example_list_with_context={"examples": examples, "context": context})


def write_classes(result: classification_pb2.ClassificationResult) -> dict[str, Any]:
    """Returns lists of `[label, score]`, one list for each example."""
    rows = [[[item.label, _shortest(item.score)] for item in row.classes] for row in result.classifications]
    return {"results": rows}


def write_values(result: regression_pb2.RegressionResult) -> dict[str, Any]:
    """Returns one value for each example."""
    return {"results": [_shortest(row.value) for row in result.regressions]}


def quote(value: Any) -> str:
    """Returns the beginning of a JSON value as text, for messages."""
    try:
        return json.dumps(value, ensure_ascii=False)[:_LONGEST_QUOTE]
    except RecursionError:  # nested so deeply that it can just be parsed
        return _json_type(value)


def _json_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "Null", False: "False", True: "True"}[value]
    return {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"}[type(value)]


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str)


def _base64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _columns(value: Any, signature: Signature) -> Mapping[str, Any]:
    if not _is_object(value):
        return {_only_input(signature, "inputs is a plain value/list, but expecting an object"): value}
    for name in signature.inputs:
        if name not in value and name not in signature.defaults:
            raise invalid_argument(f"Missing named input: {name} in 'inputs' object.")
    return {name: value[name] for name in signature.inputs if name in value}


def _columns_from_rows(rows: Any, signature: Signature, limits: Limits) -> Mapping[str, Any]:
    if not isinstance(rows, list):
        raise invalid_argument("Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid_argument("No values in 'instances' array")
    limits.check(len(rows))
    named = _is_object(rows[0])
    for position, row in enumerate(rows):
        if _is_object(row) != named:
            kinds = "object but got list" if named else "value/list but got object"
            raise invalid_argument(f"Expecting {kinds} at item {position} of input list")
        if named:
            _check_row(position, row, set(rows[0]), signature)
    if named:
        return {name: [row[name] for row in rows] for name in rows[0]}
    return {_only_input(signature, "instances is a plain list, but expecting list of objects"): rows}


def _check_row(position: int, row: dict[str, Any], expected: set[str], signature: Signature) -> None:
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


def _only_input(signature: Signature, complaint: str) -> str:
    if len(signature.inputs) != 1:
        raise invalid_argument(f"{complaint} as multiple input tensors required as per tensorinfo_map")
    (name,) = signature.inputs
    return str(name)


def _read_tensor(name: str, value: Any, info: meta_graph_pb2.TensorInfo, limits: Limits) -> np.ndarray:
    dtype = input_type(name, info)
    values = np.array(value, dtype=object)  # lists of different length, or too many of them, stay lists
    limits.check_rank(values.ndim)
    limits.check(len(values) if values.ndim else 1, values.size * dtype.itemsize)
    for scalar in values.ravel():
        if isinstance(scalar, list):
            raise invalid_argument("JSON lists are not of one shape: all lists of one level must have the same length")
        if not _fits(scalar, dtype):
            raise invalid_argument(
                f'input "{name}": JSON Value: {quote(scalar)} Type: {_json_type(scalar)} '
                f"is not of expected type: {type_name(info.dtype)}"
            )
    return np.array(np.frompyfunc(_read_bytes, 1, 1)(values), object) if dtype.hasobject else values.astype(dtype)


def _fits(value: Any, dtype: np.dtype) -> bool:
    """Returns whether a JSON value is of a type; raises if it is but would lose precision."""
    if dtype.hasobject:
        return isinstance(value, str | dict)
    if isinstance(value, bool) != (dtype.kind == "b") or not isinstance(value, int | float):
        return False
    if dtype.kind in "iu":
        return isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    if dtype in _FLOATS:
        name, largest, inexact = _FLOATS[dtype]
        if isinstance(value, int) and value in _INTEGERS and abs(value) >= inexact or largest < abs(value) < math.inf:
            raise invalid_argument(f"Cannot convert JSON value: {quote(value)} to {name} without loss of precision.")
    return True


def _read_bytes(value: str | dict[str, Any]) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not _is_base64(value):
        raise invalid_argument(f"JSON Value: {quote(value)} not formatted correctly for base64 data")
    try:
        return decode_base64(value["b64"])
    except ValueError as error:
        raise invalid_argument("Unable to base64 decode") from error


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
        return to_list(np.frompyfunc(_base64, 1, 1)(array) if name.endswith(_BYTES_SUFFIX) else as_text(array))
    if array.dtype not in _FLOATS and array.dtype.kind not in "iub":
        raise invalid_argument(f"Failed to write JSON value for tensor type: {type_of(array)}")
    return to_list(array)


def _read_example(value: Any) -> example_pb2.Example:
    if not isinstance(value, dict):
        raise invalid_argument(f"Example must be JSON object but got JSON {_json_type(value)}")
    example = example_pb2.Example()
    for name, content in value.items():
        feature = example.features.feature[name]
        for item in content if isinstance(content, list) else [content]:
            kind, value = _feature_value(name, item)
            present = feature.WhichOneof("kind") or kind
            if present != kind:
                wanted = present.removesuffix("_list")
                raise invalid_argument(f"Unexpected element type in feature: {name} expecting type: {wanted}")
            getattr(feature, kind).value.append(value)
    return example


def _feature_value(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bool | int):
        if value not in _INT64:
            raise invalid_argument(f"Feature: {name} has uint64 element. Only int64 is supported.")
        return "int64_list", int(value)
    if isinstance(value, float):
        _fits(value, np.dtype(np.float32))
        return "float_list", value
    if isinstance(value, str) or _is_base64(value):
        return "bytes_list", _read_bytes(value)
    raise invalid_argument(f"Feature: {name} has element with unexpected JSON type: {_json_type(value)}")


def _shortest(value: float) -> float:
    """Returns the shortest decimal that parses to the same float32: 0.2, not 0.20000000298023224."""
    return float(str(np.float32(value)))
