"""Classify and Regress in JSON: objects of features to `tf.Example`s, and results back."""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from export.server.rest_json import is_base64, json_type, read_base64
from export.server.status import invalid_argument
from export.wire.protos import classification_pb2, example_pb2, input_pb2, regression_pb2

_INT64 = range(-(1 << 63), 1 << 63)


def read_examples(document: Mapping[str, Any]) -> input_pb2.Input:
    """Reads the `examples` of a request, and the `context` that all of them share if there is one.

    Args:
        document: The request's JSON object.

    Raises:
        RequestError: INVALID_ARGUMENT, saying what does not fit.
    """
    if "examples" not in document:
        raise invalid_argument("When method is classify, key 'examples' is expected and was not found")
    rows = document["examples"]
    if not isinstance(rows, list):
        raise invalid_argument("Expecting 'examples' value to be an list/array")
    if not rows:
        raise invalid_argument("'examples' value is an empty array")
    examples = [_read_example(row) for row in rows]
    if "context" not in document:
        return input_pb2.Input(example_list=input_pb2.ExampleList(examples=examples))
    context = _read_example(document["context"])
    listed = input_pb2.ExampleListWithContext(examples=examples, context=context)
    return input_pb2.Input(example_list_with_context=listed)


def write_classes(result: classification_pb2.ClassificationResult) -> dict[str, Any]:
    """Returns lists of `[label, score]`, one list for each example."""
    rows = [[[one.label, _shortest(one.score)] for one in row.classes] for row in result.classifications]
    return {"results": rows}


def write_values(result: regression_pb2.RegressionResult) -> dict[str, Any]:
    """Returns one value for each example."""
    return {"results": [_shortest(row.value) for row in result.regressions]}


def _read_example(value: Any) -> example_pb2.Example:
    if not isinstance(value, dict):
        raise invalid_argument(f"Example must be JSON object but got JSON {json_type(value)}")
    example = example_pb2.Example()
    for name, content in value.items():
        feature = example.features.feature[name]
        for item in content if isinstance(content, list) else [content]:
            _add(name, feature, item)
    return example


def _add(name: str, feature: Any, value: Any) -> None:
    kind, item = _kind(name, value)
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        wanted = present.removesuffix("_list")
        raise invalid_argument(f"Unexpected element type in feature: {name} expecting type: {wanted}")
    getattr(feature, kind).value.append(item)


def _kind(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bool | int):
        if value not in _INT64:
            raise invalid_argument(f"Feature: {name} has uint64 element. Only int64 is supported.")
        return "int64_list", int(value)
    if isinstance(value, float):
        try:
            struct.pack("<f", value)
        except OverflowError as error:
            raise invalid_argument(f"Cannot convert JSON value: {value} to float without loss of precision.") from error
        return "float_list", value
    if isinstance(value, str):
        return "bytes_list", value.encode()
    if is_base64(value):
        return "bytes_list", read_base64(value)
    raise invalid_argument(f"Feature: {name} has element with unexpected JSON type: {json_type(value)}")


def _shortest(value: float) -> float:
    """Returns the shortest decimal that reads back as the same float32: 0.2, not 0.20000000298023224."""
    return float(str(np.float32(value)))
