"""Shapes that cost little: a decoding step consists of many small operations, half of which would work out sizes."""

from keras import ops


def reshape(tensor, sizes):
    """Returns `tensor` with another shape.

    Args:
        tensor: The tensor.
        sizes: Integers and scalar tensors; a single tensor among them is left for the backend to find out, which
            costs nothing.
    """
    unknown = [axis for axis, size in enumerate(sizes) if size is not None and not isinstance(size, int)]
    if len(unknown) == 1 and all(size for axis, size in enumerate(sizes) if axis not in unknown):
        sizes = [-1 if axis in unknown else size for axis, size in enumerate(sizes)]
    return ops.reshape(tensor, sizes)


def at_positions(layer, inputs):
    """Returns `layer` of every position, [..., E] from [..., D].

    For tensors of rank 3 whose sizes are not known, TensorFlow works out in a score of small operations which axes to
    multiply, and cannot add the bias in the same kernel.

    Args:
        layer: A layer [P, D] → [P, E].
        inputs: [..., D].
    """
    if len(inputs.shape) == 2:
        return layer(inputs)
    *leading, size = ops.shape(inputs)
    outputs = layer(ops.reshape(inputs, (-1, size)))
    return reshape(outputs, (*leading, outputs.shape[-1]))
