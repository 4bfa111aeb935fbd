"""Embeddings whose matrix also computes the logits, and tensors that decoding computes from weights once."""

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import keras
from keras import ops

from zoo.errors import InputError
from zoo.layers.core.constants import computed_constants, constant_of
from zoo.layers.core.kernels import matmul_transposed
from zoo.row_selection import take


def _look_up(layer: Any, ids: Any) -> Any:
    """Returns the vectors [..., D] of ids ≥ 0; Keras accepts others, at four more operations on TensorFlow."""
    if keras.backend.standardize_dtype(ids.dtype) not in ("int32", "int64"):
        ids = ops.cast(ids, "int32")
    return ops.cast(take(layer.embeddings, ids), layer.compute_dtype)


@keras.saving.register_keras_serializable(package="attention_zoo")
class Embedding(keras.layers.Embedding):
    """Keras' table of vectors E [V, D], for ids ≥ 0."""

    def call(self, inputs):
        return _look_up(self, inputs)

    def quantize(self, mode=None, type_check=True, config=None):
        """See `keras.layers.Embedding`, which by default does not quantise subclasses."""
        super().quantize(mode, type_check=False, config=config)


@keras.saving.register_keras_serializable(package="attention_zoo")
class ReversibleEmbedding(keras.layers.ReversibleEmbedding):
    """A table of vectors E [V, D] that also computes the logits: `hidden · Eᵀ`.

    Unlike Keras' own layer, it multiplies in the compute dtype, while Keras multiplies in the dtype of the table, so
    that under `mixed_bfloat16` the largest product of a model would be in float32. It also propagates masks, because
    logits belong to the same positions as their inputs.

    Args:
        input_dim: Number of tokens, V.
        output_dim: Size of a vector, D.
        **options: Arguments of `keras.layers.ReversibleEmbedding`.

    Reference:
        Press and Wolf 2017, "Using the Output Embedding to Improve Language Models", section 3 (tying),
        https://arxiv.org/abs/1608.05859
    """

    def __init__(self, input_dim, output_dim, **options):
        precision = keras.dtype_policies.get(options.get("dtype")).compute_dtype
        super().__init__(input_dim, output_dim, **{"reverse_dtype": precision, **options})
        self.supports_masking = True

    def call(self, inputs, reverse=False):
        transposed = constant_of(self) if reverse else None
        if transposed is not None:
            return ops.matmul(ops.cast(inputs, self.reverse_dtype), transposed)
        if reverse and self.tie_weights and self.logit_soft_cap is None:
            return matmul_transposed(*(ops.cast(matrix, self.reverse_dtype) for matrix in (inputs, self.embeddings)))
        return super().call(inputs, reverse=True) if reverse else _look_up(self, inputs)

    def quantize(self, mode=None, type_check=True, config=None):
        """See `keras.layers.ReversibleEmbedding`, which by default does not quantise subclasses."""
        super().quantize(mode, type_check=False, config=config)

    def constant(self) -> Any:
        """Returns the matrix of the logits, [D, V], in the dtype of their product, or `None` if it is not the table."""
        if not self.tie_weights or self.quantization_mode is not None:
            return None
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


def make_output(options: Any, tokens: int, dtype: Any) -> keras.layers.Layer | None:
    """Returns the output layer of a model, see `to_logits`: `Dense`, `Bias`, or `None` if the embedding suffices."""
    if options.hidden_dim != options.model_dim:
        return keras.layers.Dense(tokens, use_bias=options.output_bias, dtype=dtype, name="output")
    return Bias(tokens, dtype=dtype, name="output") if options.output_bias else None


def to_logits(hidden: Any, embedding: keras.layers.Layer, output: keras.layers.Layer | None) -> Any:
    """Returns logits [P, V] of activations [P, D]: `W_oᵀ h + b_o`, with W_o of `output` or else of the embedding."""
    if isinstance(output, keras.layers.Dense):
        return output(hidden)
    logits = embedding(hidden, reverse=True)
    return logits if output is None else output(logits)


class Readout(NamedTuple):
    """The output layer for some of the tokens: logits [..., C] of activations [..., D], `h · W + b`.

    Attributes:
        kernel: The columns of these tokens, W [D, C].
        bias: Their biases, b [C]; or `None`.
    """

    kernel: Any
    bias: Any

    def __call__(self, hidden: Any) -> Any:
        """Returns the logits of activations."""
        logits = ops.matmul(ops.cast(hidden, self.kernel.dtype), self.kernel)
        return logits if self.bias is None else ops.add(logits, self.bias)


def readout_of(tokens: Any, embedding: keras.layers.Layer, output: keras.layers.Layer | None) -> Readout:
    """Returns the output layer for some tokens, int32 [C], of a model whose logits are computed by `to_logits`.

    Raises:
        InputError: If Keras has quantised the matrix.
    """
    layer = output if isinstance(output, keras.layers.Dense) else embedding
    if layer.quantization_mode is not None:
        raise InputError(
            f"A model quantised by Keras does not support shortlists. Received: {layer.quantization_mode}."
        )
    if layer is not output and layer.tie_weights:
        kernel = ops.transpose(take(layer.embeddings, tokens, axis=0))
    else:
        kernel = take(output.kernel if layer is output else layer.reverse_embeddings, tokens, axis=1)
    kernel = ops.cast(kernel, layer.compute_dtype)
    bias = None if output is None or output.bias is None else take(output.bias, tokens, axis=0)
    return Readout(kernel, None if bias is None else ops.cast(bias, layer.compute_dtype))


def tied_tables(model: keras.Model) -> list[ReversibleEmbedding]:
    """Returns the embeddings of a model whose transposed table computes its logits, except quantised ones."""
    tables = [layer for layer in model._flatten_layers() if isinstance(layer, ReversibleEmbedding)]
    return [table for table in tables if table.tie_weights and table.quantization_mode is None]


def layers_of_steps(*models: Any) -> list[keras.layers.Layer]:
    """Returns the layers with a `constant` for decoding steps: those of `layers_of_steps` of models, or tied tables."""
    layers = [model.layers_of_steps if hasattr(model, "layers_of_steps") else tied_tables(model) for model in models]
    return [layer for of_model in layers for layer in of_model if hasattr(layer, "constant")]


def weights_of_steps(*models: Any) -> AbstractContextManager[None]:
    """Returns a context for decoding, in which tensors that depend only on weights are computed once for all steps.

    Tied tables are transposed for the logits (otherwise each product would transpose them, which for a few rows takes
    longer than the product), and the query, key and value projections of self-attention are concatenated. All other
    weights are read at each step: to pass a tensor through a loop takes TensorFlow three operations a step, and to read
    a variable one.
    """
    return computed_constants(layers_of_steps(*models))
