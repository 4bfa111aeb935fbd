"""Dense projections, and cheap reshaping: of the many small operations of a decoding step, half compute sizes."""

import keras
from keras import backend, ops

from zoo.layers.core.graphs import axis_size


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
    sizes = [*map(tensor.shape.__getitem__, axes)]
    unknown = sizes.count(None)
    if unknown == 1 and 0 not in sizes:
        sizes[sizes.index(None)] = -1
    elif unknown:
        sizes = [axis_size(tensor, axis) for axis in axes]
    return sizes


def is_plain(layer):
    """Returns whether a layer is a `Dense` as Keras makes it, of whose call nothing but the product is wanted."""
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
    # Inside a layer of another precision its variables would be rounded; and a wrong size is for Keras to say.
    if backend.standardize_dtype(kernel.dtype) != dtype or rows.shape[-1] != kernel.shape[0]:
        return layer(rows)
    outputs = ops.matmul(ops.cast(rows, dtype), kernel)
    if layer.bias is not None:
        outputs = ops.add(outputs, layer.bias.value)  # of a variable of Keras, TensorFlow takes the slow path
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


def join_heads(dense, heads, size):
    """Returns a map [P, N·H] → [P, E], or `None` for none, of the joined heads of each position, [B, T, E].

    `size` is N·H, which the shape of the heads [B, N, T, H] need not tell.
    """
    sizes = sizes_of(heads, 0, 2)
    heads = heads if heads.shape[2] == 1 else ops.transpose(heads, (0, 2, 1, 3))
    if dense is None:
        return ops.reshape(heads, (*sizes, size))
    rows = multiply(dense, ops.reshape(heads, (-1, size)))
    return ops.reshape(rows, (*sizes, rows.shape[-1]))
