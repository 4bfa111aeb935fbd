"""The number of arithmetic operations of a Keras operation, given the shapes of its inputs and outputs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras


@dataclass(frozen=True)
class Operations:
    """Numbers of arithmetic operations.

    Args:
        multiplications: Multiplications and divisions.
        additions: Additions and subtractions.
        others: Exponentials, other functions, comparisons and selections.
    """

    multiplications: int = 0
    additions: int = 0
    others: int = 0

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(
            self.multiplications + other.multiplications, self.additions + other.additions, self.others + other.others
        )

    def __str__(self) -> str:
        counts = {
            "multiplications": self.multiplications,
            "additions": self.additions,
            "other operations": self.others,
        }
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)

    def __mul__(self, times: int) -> "Operations":
        return Operations(self.multiplications * times, self.additions * times, self.others * times)


def size(shape: Any) -> int:
    """Returns the number of elements of a shape."""
    return math.prod(shape)


def _products(results: int, terms: int) -> Operations:
    """Returns the operations of `results` sums of `terms` products each."""
    return Operations(multiplications=results * terms, additions=results * max(terms - 1, 0))


def _matmul(inputs: list[Any], result: int, node: Any) -> Operations:
    return _products(result, inputs[0].shape[-1])


def _einsum(inputs: list[Any], result: int, node: Any) -> Operations:
    letters, output = node.operation.subscripts.replace(" ", "").split("->")
    if "." in letters:
        axes = letters.split(",")[-1].replace("...", "")
        contracted = [axis for axis in axes if axis not in output]
        return _products(result, math.prod(inputs[-1].shape[axes.index(axis) - len(axes)] for axis in contracted))
    sizes = {
        letter: length
        for term, tensor in zip(letters.split(","), inputs, strict=True)
        for letter, length in zip(term, tensor.shape, strict=True)
    }
    return _products(result, math.prod(length for letter, length in sizes.items() if letter not in output))


def _tensordot(inputs: list[Any], result: int, node: Any) -> Operations:
    first, second = (size(tensor.shape) for tensor in inputs)
    return _products(result, math.isqrt(first * second // max(result, 1)))


def _convolution(inputs: list[Any], result: int, node: Any) -> Operations:
    *window, channels, _ = inputs[1].shape  # the kernel: [width, …, channels of a group, filters]
    operation, positions = node.operation, inputs[0].shape[1:-1]
    terms = _products(result, math.prod(window) * channels)
    if operation.padding != "same" or getattr(operation, "data_format", None) == "channels_first":
        return terms
    # Like compilers, this excludes products with padding.
    options = (
        (option,) * len(window) if isinstance(option, int) else option
        for option in (operation.strides, operation.dilation_rate)
    )
    parts = [_part_inside(*axis) for axis in zip(positions, window, *options, strict=True)]
    share = math.prod(parts)
    return Operations(round(terms.multiplications * share), round(terms.additions * share))


def _part_inside(length: int, width: int, stride: int, dilation: int) -> float:
    """Returns the fraction of window positions along one axis that are not padding."""
    count = -(-length // stride)
    missing = max((count - 1) * stride + (width - 1) * dilation + 1 - length, 0)
    taps = (row * stride - missing // 2 + tap * dilation for row in range(count) for tap in range(width))
    return sum(0 <= tap < length for tap in taps) / max(count * width, 1)


def _depthwise_convolution(inputs: list[Any], result: int, node: Any) -> Operations:
    return _products(result, math.prod(inputs[1].shape[:-2]))


def _softmax(inputs: list[Any], result: int, node: Any) -> Operations:
    axis = getattr(node.operation, "axis", -1)
    rows = result // max(inputs[0].shape[-1 if axis is None else axis], 1)
    # exp(s − max s) / Σ exp(s − max s), where subtracting the largest score prevents overflow.
    return Operations(result, result + result - rows, result + result - rows)


def _log_softmax(inputs: list[Any], result: int, node: Any) -> Operations:
    softmax = _softmax(inputs, result, node)
    return Operations(0, softmax.additions + result, softmax.others)


def _dot_product_attention(inputs: list[Any], result: int, node: Any) -> Operations:
    query, key, value = inputs[:3]  # [B, T, N, H]
    batch, queries, heads, width = query.shape
    scores = batch * heads * queries * key.shape[1]
    softmax = Operations(scores, 2 * scores, 2 * scores)
    return _products(scores, width) + Operations(scores) + softmax + _products(result, value.shape[1])


def _layer_norm(inputs: list[Any], result: int, node: Any) -> Operations:
    # Mean, variance, (x − mean) / √(variance + ε) γ + β.
    return Operations(3 * result, 4 * result, result // max(inputs[0].shape[-1], 1))


def _rms_norm(inputs: list[Any], result: int, node: Any) -> Operations:
    return Operations(3 * result, result, result // max(inputs[0].shape[-1], 1))


def _batch_norm(inputs: list[Any], result: int, node: Any) -> Operations:
    return Operations(2 * result, 2 * result)


def _gelu(inputs: list[Any], result: int, node: Any) -> Operations:
    # x Φ(x), by tanh or by the rational functions that approximate the error function.
    terms = Operations(6, 2, 1) if node.operation.approximate else Operations(32, 32, 1)
    return terms * result


def _each(multiplications: int = 0, additions: int = 0, others: int = 0) -> Callable[..., Operations]:
    """Returns a rule with these operations for each element of the result."""
    return lambda inputs, result, node: Operations(multiplications, additions, others) * result


def _reduction(multiplications: int = 0, additions: int = 0, others: int = 0) -> Callable[..., Operations]:
    """Returns a rule with these operations for each element of the input, except the first of each result."""

    def rule(inputs: list[Any], result: int, node: Any) -> Operations:
        return Operations(multiplications, additions, others) * max(size(inputs[0].shape) - result, 0)

    return rule


def _mean(inputs: list[Any], result: int, node: Any) -> Operations:
    return Operations(result, max(size(inputs[0].shape) - result, 0))


_SIMPLE = {
    _each(multiplications=1): "Multiply Divide DivideNoNan TrueDivide FloorDivide Reciprocal Square Scale Mod Power",
    _each(additions=1): "Add Subtract Negative Cumsum",
    _each(others=1): "Exp Expm1 Log Log1p Log2 Log10 Sqrt Rsqrt Tanh Sin Cos LogSigmoid Erf Relu Relu6 Maximum "
    "Minimum Clip Where Sign Absolute Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr "
    "LogicalNot LogicalXor Floor Ceil Round Softplus LeakyRelu HardTanh Threshold",
    _each(multiplications=1, additions=1, others=1): "Sigmoid Elu Celu Selu HardSigmoid Softsign",
    _each(multiplications=2, additions=1, others=1): "Silu Glu HardSilu",
    _gelu: "Gelu",
    _reduction(additions=1): "Sum SegmentSum",
    _reduction(others=1): "Max Min Amax Amin Any All Argmax Argmin MaxPool",
    _reduction(additions=1, others=1): "Logsumexp",
    _reduction(multiplications=1): "Prod",
    _reduction(multiplications=1, additions=2): "Var Std",
    _reduction(multiplications=1, additions=1): "Norm",
    _mean: "Mean AveragePool",
    _matmul: "Matmul Dot",
    _einsum: "Einsum",
    _tensordot: "Tensordot Inner Outer",
    _convolution: "Conv ConvTranspose",
    _depthwise_convolution: "DepthwiseConv",
    _softmax: "Softmax",
    _log_softmax: "LogSoftmax",
    _dot_product_attention: "DotProductAttention",
    _layer_norm: "LayerNorm Normalize",
    _rms_norm: "RMSNorm",
    _batch_norm: "BatchNorm",
}
_RULES = {name: rule for rule, names in _SIMPLE.items() for name in names.split()}
"""The rules by class of a Keras operation. All others, such as reshaping, gathering and casting, compute nothing."""


def operations_of(node: Any) -> Operations:
    """Returns the operations of a node of a symbolic graph."""
    rule = _RULES.get(type(node.operation).__name__)
    if rule is None:
        return Operations()
    tensors = [
        tensor
        for tensor in keras.tree.flatten((node.arguments.args, node.arguments.kwargs))
        if hasattr(tensor, "shape")
    ]
    return rule(tensors, size(node.outputs[0].shape), node)
