"""Dense projections, and cheap reshaping: of the many small operations of a decoding step, half compute sizes."""

import keras
from keras import ops


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


def apply_positionwise(layer, inputs):
    """Returns `layer`, a map [P, D] → [P, E], of every position: [..., E] from [..., D].

    For a tensor of rank 3 with unknown sizes, TensorFlow spends twenty small operations on finding the axes to
    multiply, and cannot add the bias in the same kernel; and in a loop, XLA cannot compile their gradients.
    """
    if len(inputs.shape) == 2:
        return layer(inputs)
    *leading, size = ops.shape(inputs)
    outputs = layer(ops.reshape(inputs, (-1, size)))
    return reshape(outputs, (*leading, outputs.shape[-1]))
