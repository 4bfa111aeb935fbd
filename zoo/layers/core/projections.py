"""Dense projections, and cheap reshaping: of the many small operations of a decoding step, half compute sizes."""

import keras
from keras import ops

from zoo.layers.core.kernels import axis_size


def clone_initializer(initializer):
    """Returns an initializer for one more weight; anything but a Keras initializer is returned as it is.

    An initializer object draws the same values at every call, so that weights of equal shape would start equal. Its
    clone draws new ones, unless the initializer has a seed.
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
    """Sets a sublayer in place of another, which the owner forgets: one that is never built could not be adapted."""
    owner._tracker.untrack(getattr(owner, name))
    setattr(owner, name, layer)


def effective_kernel(dense):
    """Returns the matrix [D, units] that a projection multiplies with, a NumPy array in float32.

    In a quantised layer it is measured; low-rank corrections are part of it.
    """
    if dense.quantization_mode is None:
        return ops.convert_to_numpy(ops.cast(dense.kernel, "float32"))
    size = dense.input_spec.axes[-1]
    rows = dense(ops.eye(size, dtype=dense.compute_dtype))
    bias = 0.0 if dense.bias is None else dense.bias
    return ops.convert_to_numpy(ops.cast(rows, "float32") - ops.cast(bias, "float32"))


def reshape(tensor, shape):
    """Returns `tensor` with another shape.

    A single size that is a scalar tensor is left for the backend to infer, which costs nothing.
    """
    unknown = [axis for axis, size in enumerate(shape) if size is not None and not isinstance(size, int)]
    if len(unknown) == 1 and all(size for axis, size in enumerate(shape) if axis not in unknown):
        shape = [-1 if axis in unknown else size for axis, size in enumerate(shape)]
    return ops.reshape(tensor, shape)


def split_at(tensor, size):
    """Returns the first features [..., size] of a tensor, and the others.

    Not `ops.split`, for which Keras on PyTorch cannot infer shapes without computing everything.
    """
    return tensor[..., :size], tensor[..., size:]


def sizes_of(tensor, *axes):
    """Returns the sizes of some axes of a tensor, for `ops.reshape`, at the cost of as little as possible.

    Known sizes are integers. A single unknown one is −1, for the backend to infer; of several, the backend computes
    each.
    """
    sizes = [tensor.shape[axis] for axis in axes]
    unknown = [number for number, size in enumerate(sizes) if size is None]
    if len(unknown) == 1 and all(size != 0 for size in sizes):
        sizes[unknown[0]] = -1
    elif unknown:
        sizes = [axis_size(tensor, axis) for axis in axes]
    return sizes


def multiply(layer, rows):
    """Returns `layer(rows)`, a map [P, D] → [P, E]; of a plain `Dense` layer it computes the product itself.

    The call of a Keras layer takes ten times as long as a product of few rows.
    """
    is_plain = type(layer) is keras.layers.Dense and layer.built and not isinstance(rows, keras.KerasTensor)
    if not is_plain or layer.quantization_mode is not None or layer.activity_regularizer is not None:
        return layer(rows)
    dtype = layer.compute_dtype
    outputs = ops.matmul(ops.cast(rows, dtype), ops.cast(layer.kernel, dtype))
    if layer.bias is not None:
        outputs = ops.add(outputs, ops.cast(layer.bias, dtype))
    return outputs if layer.activation is None else layer.activation(outputs)


def apply_positionwise(layer, inputs):
    """Returns `layer`, a map [P, D] → [P, E], of every position: [..., E] from [..., D].

    For a tensor of rank 3 with unknown sizes, TensorFlow spends twenty small operations on finding the axes to
    multiply, and cannot add the bias in the same kernel; and in a loop, XLA cannot compile their gradients.
    """
    if len(inputs.shape) == 2:
        return multiply(layer, inputs)
    outputs = multiply(layer, ops.reshape(inputs, (-1, inputs.shape[-1])))
    return ops.reshape(outputs, (*sizes_of(inputs, *range(len(inputs.shape) - 1)), outputs.shape[-1]))


def project_heads(dense, inputs, size):
    """Returns heads [B, N, T, size]: a map of every position [B, T, D] to N · size numbers, cut into heads."""
    return cut_heads(multiply(dense, ops.reshape(inputs, (-1, inputs.shape[-1]))), sizes_of(inputs, 0, 1), size)


def split_heads(projected, size):
    """Returns [B, N, T, H] from [B, T, N·H]."""
    return cut_heads(projected, sizes_of(projected, 0, 1), size)


def cut_heads(rows, sizes, size):
    """Returns [B, N, T, H] from [B · T, N·H] or [B, T, N·H], given B and T."""
    batch, length = sizes
    count = rows.shape[-1] // size
    if isinstance(length, int) and length == 1:
        return ops.reshape(rows, (batch, count, 1, size))
    return ops.transpose(ops.reshape(rows, (batch, length, count, size)), (0, 2, 1, 3))


def join_heads(dense, heads):
    """Returns a map [P, N·H] → [P, E], or `None` for none, of the joined heads of each position, [B, T, E]."""
    _, count, length, size = heads.shape
    sizes = sizes_of(heads, 0, 2)
    heads = heads if length == 1 else ops.transpose(heads, (0, 2, 1, 3))
    if dense is None:
        return ops.reshape(heads, (*sizes, count * size))
    rows = multiply(dense, ops.reshape(heads, (-1, count * size)))
    return ops.reshape(rows, (*sizes, rows.shape[-1]))
