"""Operations that differ by backend: fused attention, matrix products, sums of rows, random bits, gradients."""

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def has_accelerator():
    """Returns whether the backend is JAX on a GPU or a TPU."""
    return keras.backend.backend() == "jax" and importlib.import_module("jax").default_backend() != "cpu"


def has_fused_attention():
    """Returns whether `keras.ops.dot_product_attention` is a fused kernel on this backend, not just two products."""
    if keras.backend.backend() == "jax":
        return importlib.import_module("jax").default_backend() == "gpu"
    return keras.backend.backend() == "torch"


def fuses_masks():
    """Returns whether the fused kernel may take a mask or a bias.

    With either, cuDNN's backward pass returns NaN for queries whose scores are all below about −88, such as those of
    padding (observed on an H100, JAX 0.11.2; https://github.com/pytorch/pytorch/issues/196678).
    """
    return keras.backend.backend() != "jax" or not has_fused_attention()


def fused_attention(query, key, value, mask, bias, is_causal=False):
    """Returns `softmax(query keyᵀ + bias) value` by `keras.ops.dot_product_attention`, [B, N, T, H].

    Queries [B, N, T, D] are scaled, keys [B, N, S, D] and values [B, N, S, H]; mask (boolean) and bias (float)
    broadcast to [B, N, T, S], or are `None`. With `is_causal`, T = S and query t attends to the keys up to t.
    """
    size = value.shape[-1]
    if keras.backend.backend() == "jax":  # requires D = H; zeros change no product, and are cut from the output
        largest = max(query.shape[-1], size)
        query, key, value = (_pad_last_axis(tensor, largest) for tensor in (query, key, value))
    heads = (ops.swapaxes(tensor, 1, 2) for tensor in (query, key, value))
    is_plain = mask is None and bias is None
    with contextlib.nullcontext() if is_plain or not getattr(query, "is_cuda", False) else without_cudnn():
        output = ops.dot_product_attention(*heads, bias=bias, mask=mask, scale=1.0, is_causal=is_causal)
    output = ops.swapaxes(output, 1, 2)
    return output if output.shape[-1] == size else output[..., :size]


def without_cudnn():
    """Returns a context in which PyTorch does not choose cuDNN's kernel; see `fuses_masks`."""
    attention = importlib.import_module("torch.nn.attention")
    backends = attention.SDPBackend
    return attention.sdpa_kernel([backends.FLASH_ATTENTION, backends.EFFICIENT_ATTENTION, backends.MATH])


def _pad_last_axis(tensor, size):
    """Returns `tensor` [..., D] with zeros added at the end of its last axis, [..., size]."""
    missing = size - tensor.shape[-1]
    return ops.pad(tensor, [(0, 0)] * (len(tensor.shape) - 1) + [(0, missing)]) if missing else tensor


def products(query, key):
    """Returns `query · keyᵀ`, [..., T, S], of queries [..., T, D] and keys [..., S, D].

    TensorFlow's own operation transposes nothing; Keras' operation would copy all keys, at every step of decoding.
    """
    is_same = getattr(query, "dtype", None) == getattr(key, "dtype", None)
    if keras.backend.backend() != "tensorflow" or not is_same or isinstance(query, keras.KerasTensor):
        return ops.matmul(query, ops.swapaxes(key, -1, -2))
    return importlib.import_module("tensorflow").matmul(query, key, transpose_b=True)


def matmul_transposed(inputs, matrix):
    """Returns `inputs · matrixᵀ`, [..., N]; TensorFlow transposes neither the matrix [N, D] nor its gradient."""
    if keras.backend.backend() != "tensorflow" or isinstance(inputs, keras.KerasTensor):
        return ops.matmul(inputs, ops.transpose(matrix))
    rows = ops.reshape(inputs, (-1, matrix.shape[1]))
    return ops.reshape(products(rows, matrix), (*ops.shape(inputs)[:-1], matrix.shape[0]))


def sums_of_rows(rows, numbers, count):
    """Returns the sums of the rows [R, M] with the same number, [count, M]; `numbers` [R] are below `count`.

    On PyTorch, Keras cannot infer the shape of `ops.segment_sum` without computing it, nor sum zero rows.
    """
    if keras.backend.backend() != "torch":
        return ops.segment_sum(rows, numbers, num_segments=count)
    torch = importlib.import_module("torch")
    sums = torch.zeros((count, rows.shape[1]), dtype=rows.dtype, device=rows.device)
    return sums.scatter_add(0, numbers.long()[:, None].expand(-1, rows.shape[1]), rows)  # ONNX has it, not `index_add`


RANDOM_BITS = 16  # in each integer of `random_bits`


def has_random_bits(shape):
    """Returns whether `random_bits` supports a shape; for others it would cost as much as Keras' random numbers."""
    if keras.backend.backend() == "jax":
        return bool(shape) and all(isinstance(size, int) for size in shape) and shape[-1] % 2 == 0
    return keras.backend.backend() == "tensorflow"


def random_bits(tensor, seed):
    """Returns random integers of `RANDOM_BITS` bits in the shape of a tensor, uint16, two from each 32 bits drawn.

    The seed consists of two integers.
    """
    *leading, size = tensor.shape
    if keras.backend.backend() == "jax":  # pairs on the last axis, so that the others can be sharded over devices
        jax = importlib.import_module("jax")
        pairs = jax.random.bits(seed, (*leading, size // 2), "uint32")
        return ops.reshape(jax.lax.bitcast_convert_type(pairs, "uint16"), tensor.shape)
    tf = importlib.import_module("tensorflow")
    shape, seed = tf.shape(tensor), tf.cast(seed, "int32")
    if size is None or size % 2:
        total = tf.reduce_prod(shape)
        pairs = tf.random.stateless_uniform([(total + 1) // 2], seed, None, None, "int32")
        return tf.reshape(tf.reshape(tf.bitcast(pairs, "uint16"), [-1])[:total], shape)
    pairs = tf.random.stateless_uniform(shape // [*(1 for _ in leading), 2], seed, None, None, "int32")
    return tf.reshape(tf.bitcast(pairs, "uint16"), shape)


def gradient(function: Callable[[Any], Any], tensor: Any) -> Any:
    """Returns the gradient of `function(tensor)`, a scalar, with respect to the tensor."""
    backend = keras.backend.backend()
    if backend == "jax":
        return importlib.import_module("jax").grad(function)(tensor)
    if backend == "torch":
        tensor = tensor.detach().requires_grad_()
        return importlib.import_module("torch").autograd.grad(function(tensor), tensor, materialize_grads=True)[0]
    tf = importlib.import_module("tensorflow")
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        value = function(tensor)
    return tape.gradient(value, tensor, unconnected_gradients="zero")
