"""NumPy arrays to and from `TensorProto`, shared by the server and the client; needs no TensorFlow.

Values are encoded in the typed fields (`float_val`, `string_val`, …), as by the stock server, for clients that read
those fields. `tensor_content` can be decoded, too.
"""

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from export.wire.protos import tensor_pb2, types_pb2

_STRING_BYTES = 32  # overhead of a string: a reference in NumPy, a `tstring` in TensorFlow

_FIELDS: dict[int, tuple[np.dtype, str]] = {
    types_pb2.DT_FLOAT: (np.dtype(np.float32), "float_val"),
    types_pb2.DT_DOUBLE: (np.dtype(np.float64), "double_val"),
    types_pb2.DT_HALF: (np.dtype(np.float16), "half_val"),
    types_pb2.DT_BFLOAT16: (np.dtype(ml_dtypes.bfloat16), "half_val"),
    types_pb2.DT_INT8: (np.dtype(np.int8), "int_val"),
    types_pb2.DT_INT16: (np.dtype(np.int16), "int_val"),
    types_pb2.DT_INT32: (np.dtype(np.int32), "int_val"),
    types_pb2.DT_INT64: (np.dtype(np.int64), "int64_val"),
    types_pb2.DT_UINT8: (np.dtype(np.uint8), "int_val"),
    types_pb2.DT_UINT16: (np.dtype(np.uint16), "int_val"),
    types_pb2.DT_UINT32: (np.dtype(np.uint32), "uint32_val"),
    types_pb2.DT_UINT64: (np.dtype(np.uint64), "uint64_val"),
    types_pb2.DT_BOOL: (np.dtype(np.bool_), "bool_val"),
    types_pb2.DT_STRING: (np.dtype(object), "string_val"),
}
_NUMBERS = {dtype: number for number, (dtype, _) in _FIELDS.items()}


def type_name(number: int) -> str:
    """Returns TensorFlow's short name of a `DataType` number, such as `"float"` or `"string"`."""
    if number not in types_pb2.DataType.values():
        return f"type {number}"
    return str(types_pb2.DataType.Name(number)).removeprefix("DT_").lower()


def type_of(array: np.ndarray) -> str:
    """Returns TensorFlow's short name of an array's type."""
    return type_name(_NUMBERS[array.dtype]) if array.dtype in _NUMBERS else array.dtype.name


def numpy_type(number: int) -> np.dtype:
    """Returns the NumPy type of a `DataType` number; raises ValueError for unsupported types."""
    if number not in _FIELDS:
        raise ValueError(f"tensors of type {type_name(number)} are not supported")
    return _FIELDS[number][0]


def expanded_size(proto: tensor_pb2.TensorProto) -> tuple[int, int]:
    """Returns the number of rows and the approximate bytes of a tensor's array, without expanding it.

    Empty dimensions count as 1, so that every shape is limited.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    values, count = proto.string_val, math.prod(max(size, 1) for size in shape)
    rows = shape[0] if shape else 1
    if proto.dtype != types_pb2.DT_STRING:
        return rows, count * _FIELDS[proto.dtype][0].itemsize if proto.dtype in _FIELDS else 0
    repeated = (count - len(values)) * len(values[-1]) if values and len(values) < count else 0
    return rows, proto.ByteSize() + count * _STRING_BYTES + repeated


def to_array(proto: tensor_pb2.TensorProto) -> np.ndarray:
    """Decodes a message, strings into an object array of `bytes`; raises ValueError if it contradicts itself."""
    dtype = numpy_type(proto.dtype)
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise ValueError("the shape is not fully known")
    count = math.prod(shape)
    if proto.tensor_content:
        return _from_content(proto.tensor_content, dtype, count).reshape(shape)
    field = getattr(proto, _FIELDS[proto.dtype][1])
    if len(field) > count:
        raise ValueError(f"{len(field)} values for a shape of {count}")
    return _expand(_from_field(field, dtype), count).reshape(shape)


def to_proto(array: np.ndarray, as_content: bool = False) -> tensor_pb2.TensorProto:
    """Encodes an array; `str` and `bytes` elements both become strings, `str` as UTF-8.

    With `as_content`, raw bytes are stored in `tensor_content`, except for strings, which it cannot represent. Raises
    ValueError for unsupported types.
    """
    array = np.asarray(array)
    if array.dtype.kind in "SU":
        array = array.astype(object)
    if array.dtype not in _NUMBERS:
        raise ValueError(f"arrays of type {array.dtype} are not supported")
    number = _NUMBERS[array.dtype]
    proto = tensor_pb2.TensorProto(dtype=number, tensor_shape={"dim": [{"size": size} for size in array.shape]})
    if as_content and not array.dtype.hasobject:
        proto.tensor_content = array.tobytes()
    elif array.dtype.kind in "fb" and array.itemsize != 2:
        proto.MergeFromString(_packed(_FIELDS[number][1], array.tobytes()))
    else:
        getattr(proto, _FIELDS[number][1]).extend(_to_field(array.ravel()))
    return proto


def as_text(array: np.ndarray) -> np.ndarray:
    """Returns an array whose strings, if any, are `str` instead of `bytes`."""
    if not array.dtype.hasobject:
        return array
    return np.asarray(np.frompyfunc(lambda value: value.decode("utf-8", "replace"), 1, 1)(array), object)


def to_list(array: np.ndarray) -> Any:
    """Returns the array as nested lists for JSON.

    float32 values become the shortest decimals that parse to the same float32: 0.2, not 0.20000000298023224.
    """
    return (array.astype("S").astype(np.float64) if array.dtype == np.float32 else array).tolist()


def to_rows(outputs: Mapping[str, np.ndarray], count: int) -> list[dict[str, Any]]:
    """Returns the outputs of each of `count` texts, for JSON; an output without a batch axis is repeated."""
    columns = [
        to_list(array) if array.shape[:1] == (count,) else [to_list(array)] * count for array in outputs.values()
    ]
    return [dict(zip(outputs, row, strict=True)) for row in zip(*columns, strict=True)]


def _from_content(content: bytes, dtype: np.dtype, count: int) -> np.ndarray:
    if dtype.hasobject:
        raise ValueError("strings belong in string_val, not in tensor_content")
    if len(content) != count * dtype.itemsize:
        raise ValueError(f"{len(content)} bytes of tensor_content for {count} values of {dtype.itemsize} bytes")
    return np.frombuffer(content, dtype)


def _packed(field: str, data: bytes) -> bytes:
    """Returns a serialized field of floats or booleans, whose bytes in memory are their encoding."""
    number = tensor_pb2.TensorProto.DESCRIPTOR.fields_by_name[field].number
    head, size = [number << 3 | 2], len(data)  # wire type 2: the length as a varint, then the bytes
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size]) + data


def _from_field(field: Any, dtype: np.dtype) -> np.ndarray:
    if dtype.hasobject or (dtype.kind in "fb" and dtype.itemsize > 2) or dtype.itemsize == 8 or dtype == np.bool_:
        return np.fromiter(field, dtype, len(field))
    integers = np.fromiter(field, np.int64, len(field))  # C++ truncates numbers that are too large; NumPy would raise
    return integers.astype(np.uint16).view(dtype) if _is_encoded_as_bits(dtype) else integers.astype(dtype)


def _to_field(values: np.ndarray) -> Any:
    if values.dtype.hasobject:
        return [value.encode() if isinstance(value, str) else value for value in values]
    return (values.view(np.uint16) if _is_encoded_as_bits(values.dtype) else values).tolist()


def _is_encoded_as_bits(dtype: np.dtype) -> bool:
    return dtype.itemsize == 2 and dtype.kind not in "iu"  # half and bfloat16


def _expand(values: np.ndarray, count: int) -> np.ndarray:
    """Applies the protocol's short form: missing values repeat the last one, or are zero (or empty)."""
    if len(values) == count:
        return values
    if len(values):
        return np.concatenate([values, np.repeat(values[-1:], count - len(values))])
    return np.full(count, b"", object) if values.dtype.hasobject else np.zeros(count, values.dtype)
