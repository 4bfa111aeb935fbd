"""Embeddings that also give the logits."""

import contextlib
from typing import Any, NamedTuple

import keras
from keras import ops

from zoo.errors import InputError
from zoo.layers.core.kernels import matmul_transposed


@keras.saving.register_keras_serializable(package="attention_zoo")
class ReversibleEmbedding(keras.layers.ReversibleEmbedding):
    """A table of vectors E [V, D] that also gives the logits: `hidden · Eᵀ`.

    It multiplies in the policy's precision and passes masks on. Keras' own layer multiplies in the precision of the
    table, so that under `mixed_bfloat16` the largest product of a model would be one of float32, and drops the mask,
    though logits belong to the same positions as their inputs.

    Args:
        input_dim: Number of symbols, V.
        output_dim: Size of a vector, D.
        **options: Those of `keras.layers.ReversibleEmbedding`.

    Reference:
        Press and Wolf 2017, "Using the Output Embedding to Improve Language Models", section 3 (tying),
        https://arxiv.org/abs/1608.05859
    """

    def __init__(self, input_dim, output_dim, **options):
        precision = keras.dtype_policies.get(options.get("dtype")).compute_dtype
        super().__init__(input_dim, output_dim, **{"reverse_dtype": precision, **options})
        self.supports_masking = True
        self._transposed = None

    def call(self, inputs, reverse=False):
        if reverse and self._transposed is not None:
            return ops.matmul(ops.cast(inputs, self.reverse_dtype), self._transposed)
        if reverse and self.tie_weights and self.logit_soft_cap is None:
            return matmul_transposed(*(ops.cast(matrix, self.reverse_dtype) for matrix in (inputs, self.embeddings)))
        return super().call(inputs, reverse=reverse)

    def quantize(self, mode=None, type_check=True, config=None):
        """See `keras.layers.ReversibleEmbedding`, which by default quantises no subclass."""
        super().quantize(mode, type_check=False, config=config)

    def transposed(self) -> Any:
        """Returns the matrix that gives the logits, [D, V], in the precision of that product."""
        return ops.cast(ops.transpose(self.embeddings), self.reverse_dtype)


class Bias(keras.layers.Layer):
    """Adds a learned vector of `units` numbers: `x + b`."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, inputs):
        return inputs + ops.cast(self.bias, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


def make_output(options: Any, symbols: int, dtype: Any) -> keras.layers.Layer | None:
    """Returns what a model has for its logits beside its embedding, see `to_logits`: a map, a bias or nothing."""
    if options.hidden_dim != options.model_dim:
        return keras.layers.Dense(symbols, use_bias=options.output_bias, dtype=dtype, name="output")
    return Bias(symbols, dtype=dtype, name="output") if options.output_bias else None


def to_logits(hidden: Any, embedding: keras.layers.Layer, output: keras.layers.Layer | None) -> Any:
    """Returns logits [P, V] of activations [P, D]: `W_oᵀ h + b_o`, where W_o is that of the embedding if it fits."""
    if isinstance(output, keras.layers.Dense):
        return output(hidden)
    logits = embedding(hidden, reverse=True)
    return logits if output is None else output(logits)


class Readout(NamedTuple):
    """What gives the logits of some symbols alone, [..., C] of activations [..., D]: `h · W + b`.

    Attributes:
        kernel: The columns of these symbols, W [D, C].
        bias: Their biases, b [C]; or `None`.
    """

    kernel: Any
    bias: Any

    def __call__(self, hidden: Any) -> Any:
        """Returns the logits of activations."""
        logits = ops.matmul(ops.cast(hidden, self.kernel.dtype), self.kernel)
        return logits if self.bias is None else ops.add(logits, self.bias)


def readout_of(symbols: Any, embedding: keras.layers.Layer, output: keras.layers.Layer | None) -> Readout:
    """Returns what gives the logits of some symbols, int32 [C], of a model whose logits are those of `to_logits`.

    Raises:
        InputError: If Keras has quantised the matrix.
    """
    layer = output if isinstance(output, keras.layers.Dense) else embedding
    if layer.quantization_mode is not None:
        raise InputError(f"A model that Keras has quantised takes no shortlist. Received: {layer.quantization_mode}.")
    if layer is not output and layer.tie_weights:
        kernel = ops.transpose(ops.take(layer.embeddings, symbols, axis=0))
    else:
        kernel = ops.take(output.kernel if layer is output else layer.reverse_embeddings, symbols, axis=1)
    kernel = ops.cast(kernel, layer.compute_dtype)
    bias = None if output is None or output.bias is None else ops.take(output.bias, symbols, axis=0)
    return Readout(kernel, None if bias is None else ops.cast(bias, layer.compute_dtype))


def tied_tables(model: keras.Model) -> list[ReversibleEmbedding]:
    """Returns the embeddings of a model whose transposed table gives its logits, unless it is quantised."""
    tables = [layer for layer in model._flatten_layers() if isinstance(layer, ReversibleEmbedding)]
    return [table for table in tables if table.tie_weights and table.quantization_mode is None]


@contextlib.contextmanager
def transposed_tables(model, kernels=None):
    """A context in which a model's tied tables are already transposed for its logits.

    Otherwise each product begins by transposing the matrix, at every step of decoding: for a few rows that takes longer
    than the product.

    The kernels are what `ReversibleEmbedding.transposed` returned for each of `tied_tables`; by default they are
    transposed now. Tables that a context outside this one has transposed stay as they are.
    """
    tables, tied = [], tied_tables(model)
    for table, kernel in zip(tied, kernels or [None] * len(tied), strict=True):
        if table._transposed is None:
            table._transposed = table.transposed() if kernel is None else kernel
            tables.append(table)
    try:
        yield
    finally:
        for table in tables:
            table._transposed = None
