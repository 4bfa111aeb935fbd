"""Dense projections, and reshaping with few operations: half the operations of a decoding step compute sizes."""

import keras
from keras import backend, ops

from zoo.layers.core.graphs import axis_size
from zoo.layers.core.lazy import value_of


def clone_initializer(initializer):
    """Returns a clone of a Keras initializer, for another weight, and anything else unchanged.

    An initializer draws the same values at every call, so that weights of equal shape would start equal. Its clone
    draws new values, unless the initializer has a seed.
    """
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer


def projection(owner, units, name, use_bias=False, kernel_initializer="glorot_uniform", activation=None):
    """Returns a `Dense` layer with the dtype policy of its owner; the initializer of its kernel is cloned."""
    return keras.layers.Dense(
        units,
        activation=activation,
        use_bias=use_bias,
        kernel_initializer=clone_initializer(kernel_initializer),
        dtype=owner.dtype_policy,
        name=name,
    )


def replace_layer(owner, name, layer):
    """Replaces a sublayer; the owner stops tracking the old one, which is never built and could not be adapted."""
    owner._tracker.untrack(getattr(owner, name))
    setattr(owner, name, layer)


def effective_kernel(dense):
    """Returns the matrix [D, units] by which a projection multiplies, a NumPy array in float32.

    For a quantised layer it is computed from the outputs, which include low-rank corrections.
    """
    if dense.quantization_mode is None:
        return ops.convert_to_numpy(ops.cast(dense.kernel, "float32"))
    size = dense.input_spec.axes[-1]
    rows = dense(ops.eye(size, dtype=dense.compute_dtype))
    bias = 0.0 if dense.bias is None else dense.bias
    return ops.convert_to_numpy(ops.cast(rows, "float32") - ops.cast(bias, "float32"))


def reshape(tensor, shape):
    """Returns `tensor` with another shape, of integers and sizes that may be `Lazy`.

    A single size that is unknown is replaced by −1, which the backend infers at no cost.
    """
    unknown = [axis for axis, size in enumerate(shape) if size is not None and not isinstance(size, int)]
    if len(unknown) == 1 and all(size for axis, size in enumerate(shape) if axis not in unknown):
        return ops.reshape(tensor, [-1 if axis in unknown else size for axis, size in enumerate(shape)])
    return ops.reshape(tensor, [value_of(size) for size in shape])


def split_at(tensor, size):
    """Returns the first features [..., size] of a tensor, and the others.

    `ops.split` is not used, since Keras on PyTorch cannot infer its shapes without computing it.
    """
    return tensor[..., :size], tensor[..., size:]


def sizes_of(tensor, *axes):
    """Returns the sizes of some axes of a tensor, for `ops.reshape`, with as few operations as possible.

    Known sizes are integers. A single unknown size is −1, which the backend infers; several are computed.
    """
    sizes = [*map(tensor.shape.__getitem__, axes)]
    unknown = sizes.count(None)
    if unknown == 1 and 0 not in sizes:
        sizes[sizes.index(None)] = -1
    elif unknown:
        sizes = [axis_size(tensor, axis) for axis in axes]
    return sizes


def is_plain(layer):
    """Returns whether a layer is an unmodified, built `Dense` whose call computes nothing but the product."""
    if type(layer) is not keras.layers.Dense or not layer.built or "call" in vars(layer):
        return False
    return layer.quantization_mode is None and layer.activity_regularizer is None


def multiply(layer, rows):
    """Returns `layer(rows)`, a map [P, D] → [P, E]; of a plain `Dense` layer it computes the product itself.

    The call of a Keras layer takes ten times as long as a product of few rows.
    """
    if not is_plain(layer) or isinstance(rows, keras.KerasTensor):
        return layer(rows)
    kernel, dtype = layer.kernel, layer.compute_dtype
    # Inside a layer of another precision, variables would be rounded; for a wrong size, Keras raises its own error.
    if backend.standardize_dtype(kernel.dtype) != dtype or rows.shape[-1] != kernel.shape[0]:
        return layer(rows)
    outputs = ops.matmul(ops.cast(rows, dtype), kernel)
    if layer.bias is not None:
        outputs = ops.add(outputs, layer.bias.value)  # for a Keras variable, TensorFlow takes a slower path
    return outputs if layer.activation is None else layer.activation(outputs)


def apply_positionwise(layer, inputs):
    """Returns `layer`, a map [P, D] → [P, E], applied to every position: [..., E] from [..., D].

    For a tensor of rank 3 with unknown sizes, TensorFlow spends twenty small operations on the axes of the product and
    cannot add the bias in the same kernel; and XLA cannot compile their gradients in a loop.
    """
    if len(inputs.shape) == 2:
        return multiply(layer, inputs)
    outputs = multiply(layer, ops.reshape(inputs, (-1, inputs.shape[-1])))
    return ops.reshape(outputs, (*sizes_of(inputs, *range(len(inputs.shape) - 1)), outputs.shape[-1]))


def project_heads(dense, inputs, size):
    """Returns heads [B, N, T, size] of inputs [B, T, D], projected by a map [P, D] → [P, N · size]."""
    return _heads_of(multiply(dense, ops.reshape(inputs, (-1, inputs.shape[-1]))), sizes_of(inputs, 0, 1), size)


def split_heads(projected, size):
    """Returns [B, N, T, H] from [B, T, N·H]."""
    return _heads_of(projected, sizes_of(projected, 0, 1), size)


def _heads_of(rows, sizes, size):
    """Returns [B, N, T, H] from [B · T, N·H] or [B, T, N·H]; `sizes` are B and T."""
    batch, length = sizes
    count = rows.shape[-1] // size
    if isinstance(length, int) and length == 1:
        return ops.reshape(rows, (batch, count, 1, size))
    return ops.transpose(ops.reshape(rows, (batch, length, count, size)), (0, 2, 1, 3))


def join_heads(dense, heads, size):
    """Returns [B, T, E] from heads [B, N, T, H]: a map [P, N·H] → [P, E], or `None`, of the joined heads.

    `size` is N·H, which may be unknown from the shape of the heads.
    """
    sizes = sizes_of(heads, 0, 2)
    heads = heads if heads.shape[2] == 1 else ops.transpose(heads, (0, 2, 1, 3))
    if dense is None:
        return ops.reshape(heads, (*sizes, size))
    rows = multiply(dense, ops.reshape(heads, (-1, size)))
    return ops.reshape(rows, (*sizes, rows.shape[-1]))
