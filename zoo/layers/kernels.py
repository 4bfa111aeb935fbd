"""What differs by backend: a loop that keeps nothing for the backward pass, and whether there is a fused kernel.

The only module of the layers that knows the backends: Keras has no operation that differentiates inside a loop.
"""

import functools
import importlib
import itertools

import keras
from keras import ops


def has_fused_attention():
    """Returns whether `keras.ops.dot_product_attention` is a kernel of its own here, and not the plain products."""
    if keras.backend.backend() == "jax":
        return importlib.import_module("jax").default_backend() == "gpu"
    return keras.backend.backend() == "torch"


def _split(tensor, count, size):
    """Returns [count, ..., size, D] from [..., T, D], padded with zeros at the end."""
    shape = list(ops.shape(tensor))
    padding = ops.zeros((*shape[:-2], count * size - shape[-2], shape[-1]), dtype=tensor.dtype)
    padded = ops.concatenate([tensor, padding], axis=-2)
    chunks = ops.reshape(padded, (*shape[:-2], count, size, shape[-1]))
    return ops.moveaxis(chunks, -3, 0)


def _join(chunks, length):
    """Returns [..., T, D] from [count, ..., size, D]."""
    chunks = ops.moveaxis(chunks, 0, -3)
    shape = ops.shape(chunks)
    return ops.reshape(chunks, (*shape[:-3], shape[-3] * shape[-2], shape[-1]))[..., :length, :]


def map_rows(function, rows, shared, variables, outputs, dtype, size, fuse=False):
    """Returns `function` of all rows, worked out `size` rows at a time, and once more for the gradient.

    The loop runs in order, so that the intermediate results of only one chunk are alive at any time.

    Args:
        function: Called with a chunk of `rows`, with `shared` and with the number of the chunk; returns a tuple of
            tensors [..., size, D].
        rows: Dict of tensors [..., T, D].
        shared: Dict of tensors that every chunk needs.
        variables: The trainable variables that `function` reads.
        outputs: Number of tensors that `function` returns.
        dtype: Their dtype.
        size: Rows in a chunk, an integer or a scalar tensor.
        fuse: Whether XLA should compile the backward pass on TensorFlow, where it is part of a graph of known sizes:
            it pays where `function` makes large tensors element by element. The forward pass stays as it is, since
            what is exported must not need XLA.
    """
    length = ops.shape(next(iter(rows.values())))[-2]
    count = (length + size - 1) // size
    chunks = {name: _split(tensor, count, size) for name, tensor in rows.items()}
    run = {"tensorflow": _map_tensorflow, "jax": _map_jax, "torch": _map_torch}[keras.backend.backend()]
    results = run(function, chunks, shared, variables, outputs, dtype, count, fuse)
    return tuple(_join(result, length) for result in results)


def _map_jax(function, chunks, shared, variables, outputs, dtype, count, fuse):
    jax = importlib.import_module("jax")
    one = jax.checkpoint(lambda chunk: function(chunk[0], shared, chunk[1]))
    return jax.lax.map(one, (chunks, ops.arange(count, dtype="int32")))


def _map_torch(function, chunks, shared, variables, outputs, dtype, count, fuse):
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint

    def one(index):
        return function({name: chunk[index] for name, chunk in chunks.items()}, shared, index)

    results = [checkpoint(one, index, use_reentrant=False) for index in range(count)]
    return [ops.stack(parts) for parts in zip(*results, strict=True)]


def _map_tensorflow(function, chunks, shared, variables, outputs, dtype, count, fuse):
    tf = importlib.import_module("tensorflow")
    names = [*chunks, *shared]
    # The same tensor may come in twice, as key and as value: each place needs a gradient of its own.
    tensors = [tf.identity(tensor) for tensor in (*chunks.values(), *shared.values())]
    weights = [tf.identity(variable.value) for variable in variables]

    known = all(tensor.shape.is_fully_defined() for tensor in tensors) and not tf.executing_eagerly()

    def one(index, tensors, weights):
        given = dict(zip(names, tensors, strict=True))
        with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
            return function({name: given[name] for name in chunks}, {name: given[name] for name in shared}, index)

    def chunk_of(index, tensors):
        return [tensor[index] if name in chunks else tensor for name, tensor in zip(names, tensors, strict=True)]

    def loop(body, arrays, sums):
        arrays = [tf.TensorArray(kind, size=count) for kind in arrays]

        def step(index, arrays, sums):
            written, added = body(index)
            arrays = [array.write(index, value) for array, value in zip(arrays, written, strict=True)]
            return index + 1, arrays, [old + tf.cast(new, old.dtype) for old, new in zip(sums, added, strict=True)]

        _, arrays, sums = tf.while_loop(
            lambda index, *_: index < count, step, (0, arrays, sums), parallel_iterations=1, maximum_iterations=count
        )
        return [array.stack() for array in arrays], sums

    @tf.custom_gradient
    def run(*inputs):
        tensors, weights = inputs[: len(names)], inputs[len(names) :]
        results, _ = loop(lambda index: (one(index, chunk_of(index, tensors), weights), []), [dtype] * outputs, [])

        def gradient(*upstream):
            kinds = [_kind(tensor, name in chunks) for name, tensor in zip(names, tensors, strict=True)]
            total = [*_of_kind("shared", kinds, tensors), *weights]

            def body(index):
                local = [tf.identity(tensor) for tensor in chunk_of(index, tensors)]
                values = [tf.identity(weight) for weight in weights]
                by_row = _of_kind("row", kinds, local)
                sources = [*by_row, *_of_kind("shared", kinds, local), *values]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(sources)
                    found = one(index, local, values)
                gradients = tape.gradient(
                    found, sources, [each[index] for each in upstream], unconnected_gradients="zero"
                )
                gradients = [tf.convert_to_tensor(each) for each in gradients]
                return gradients[: len(by_row)], gradients[len(by_row) :]

            # Sums over many chunks lose too much in half precision.
            zeros = [tf.zeros_like(each, dtype=keras.backend.result_type(each.dtype.name, "float32")) for each in total]
            row_types = [tensor.dtype for tensor in _of_kind("row", kinds, tensors)]
            sweep = functools.partial(loop, body, row_types, zeros)
            rows, sums = tf.function(sweep, jit_compile=True, autograph=False)() if fuse and known else sweep()
            sums = [tf.cast(each, like.dtype) for each, like in zip(sums, total, strict=True)]
            found = {"row": iter(rows), "shared": iter(sums), "integer": itertools.repeat(None)}
            inputs = [next(found[kind]) for kind in kinds]
            return [*inputs, *sums[len(sums) - len(weights) :]]

        return tuple(results), gradient

    return run(*tensors, *weights)


def _kind(tensor, by_row):
    if not tensor.dtype.is_floating:
        return "integer"
    return "row" if by_row else "shared"


def _of_kind(kind, kinds, tensors):
    return [tensor for tensor, own in zip(tensors, kinds, strict=True) if own == kind]
