"""What differs by backend: a loop that keeps nothing for the backward pass, random bits, and fused kernels.

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


def fused_attention(query, key, value, mask, bias):
    """Returns `softmax(query keyᵀ + bias) value` by `keras.ops.dot_product_attention`, [B, N, T, H].

    Args:
        query: [B, N, T, D], scaled.
        key: [B, N, S, D].
        value: [B, N, S, H].
        mask: Booleans that broadcast to [B, N, T, S], or `None`.
        bias: Numbers that broadcast to [B, N, T, S], or `None`.
    """
    size = value.shape[-1]
    if keras.backend.backend() == "jax":  # there D must be H: zeros change no product, and are cut from the output
        largest = max(query.shape[-1], size)
        query, key, value = (_widened_to(tensor, largest) for tensor in (query, key, value))
    heads = (ops.swapaxes(tensor, 1, 2) for tensor in (query, key, value))
    output = ops.swapaxes(ops.dot_product_attention(*heads, bias=bias, mask=mask, scale=1.0), 1, 2)
    return output if output.shape[-1] == size else output[..., :size]


def _widened_to(tensor, size):
    """Returns a tensor of which the last axis has a size, with zeros at its end."""
    missing = size - tensor.shape[-1]
    return ops.pad(tensor, [(0, 0)] * (len(tensor.shape) - 1) + [(0, missing)]) if missing else tensor


RANDOM_BITS = 16  # in each number of `random_bits`


def has_random_bits():
    """Returns whether there is `random_bits`, which elsewhere would cost no less than Keras' random numbers."""
    return keras.backend.backend() == "tensorflow"


def random_bits(shape, seed):
    """Returns random integers of `RANDOM_BITS` bits, uint16: two for each that the generator draws.

    Args:
        shape: Their shape.
        seed: Two integers.
    """
    tf = importlib.import_module("tensorflow")
    total = tf.reduce_prod(shape)
    pairs = tf.random.stateless_uniform([(total + 1) // 2], tf.cast(seed, "int32"), None, None, "int32")
    return tf.reshape(tf.reshape(tf.bitcast(pairs, "uint16"), [-1])[:total], shape)


def product_with_transposed(inputs, matrix):
    """Returns `inputs · matrixᵀ`, [..., N]; on TensorFlow the matrix is not turned round for it, nor is its gradient.

    Args:
        inputs: [..., D].
        matrix: [N, D].
    """
    if keras.backend.backend() != "tensorflow":
        return ops.matmul(inputs, ops.transpose(matrix))
    rows = ops.reshape(inputs, (-1, matrix.shape[1]))
    product = importlib.import_module("tensorflow").matmul(rows, matrix, transpose_b=True)
    return ops.reshape(product, (*ops.shape(inputs)[:-1], matrix.shape[0]))


def _split(tensor, count, size):
    """Returns [count, ..., size, D] from [..., T, D]; rows to spare at the end are the last row again.

    They are thrown away, but their gradient must be finite, too, and no score is sure to have one for zeros.
    """
    shape = list(ops.shape(tensor))
    padding = ops.broadcast_to(tensor[..., -1:, :], (*shape[:-2], count * size - shape[-2], shape[-1]))
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
        variables: The weights that `function` reads.
        outputs: Number of tensors that `function` returns.
        dtype: Their dtype.
        size: Rows in a chunk, an integer or a scalar tensor.
        fuse: Whether XLA should compile the backward pass on TensorFlow, where it is part of a graph of known sizes:
            it pays where `function` makes large tensors element by element. The forward pass stays as it is, since
            what is exported must not need XLA.
    """
    inside = function
    precision = _Precision(dtype=f"mixed_{dtype}" if dtype in ("float16", "bfloat16") else dtype)

    def function(*inputs):
        return precision(function=functools.partial(inside, *inputs))

    length = ops.shape(next(iter(rows.values())))[-2]
    count = (length + size - 1) // size
    chunks = {name: _split(tensor, count, size) for name, tensor in rows.items()}
    run = {"tensorflow": _map_tensorflow, "jax": _map_jax, "torch": _map_torch}[keras.backend.backend()]
    results = run(function, chunks, shared, variables, outputs, dtype, count, fuse)
    return tuple(_join(result, length) for result in results)


class _Precision(keras.layers.Layer):
    """Has Keras cast weights that a function reads to a dtype, in the second pass as the layer's call in the first."""

    def call(self, function):
        return function()


def _widened(function, shared):
    """Returns `function` for a `shared` in float32 or wider, and that; there the gradients of all chunks are added up.

    Args:
        function: See `map_rows`.
        shared: Likewise.
    """
    dtypes = {name: keras.backend.standardize_dtype(tensor.dtype) for name, tensor in shared.items()}

    def narrowed(rows, shared, index):
        return function(rows, {name: ops.cast(tensor, dtypes[name]) for name, tensor in shared.items()}, index)

    wide = {name: ops.cast(shared[name], keras.backend.result_type(dtype, "float32")) for name, dtype in dtypes.items()}
    return narrowed, wide


def _map_jax(function, chunks, shared, variables, outputs, dtype, count, fuse):
    jax = importlib.import_module("jax")
    function, shared = _widened(function, shared)
    one = jax.checkpoint(lambda chunk: function(chunk[0], shared, chunk[1]))
    return jax.lax.map(one, (chunks, ops.arange(count, dtype="int32")))


def _map_torch(function, chunks, shared, variables, outputs, dtype, count, fuse):
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
    function, shared = _widened(function, shared)

    def one(index):
        return function({name: chunk[index] for name, chunk in chunks.items()}, shared, index)

    results = [checkpoint(one, index, use_reentrant=False) for index in range(count)]
    return [ops.stack(parts) for parts in zip(*results, strict=True)]


def _map_tensorflow(function, chunks, shared, variables, outputs, dtype, count, fuse):
    tf = importlib.import_module("tensorflow")
    ends = len(chunks), len(chunks) + len(shared)

    def one(index, inputs):
        rows, common, values = inputs[: ends[0]], inputs[ends[0] : ends[1]], inputs[ends[1] :]
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(dict(zip(chunks, rows, strict=True)), dict(zip(shared, common, strict=True)), index)

    # The same tensor may come in twice, as key and as value: each place needs a gradient of its own.
    given = [*chunks.values(), *shared.values(), *(variable.value for variable in variables)]
    given = [tf.identity(each) for each in given]
    fuse = fuse and all(each.shape.is_fully_defined() for each in given) and not tf.executing_eagerly()

    @tf.custom_gradient
    def run(*inputs):
        results, _ = _loop_tensorflow(
            lambda index: (one(index, _at(index, inputs, ends[0])), []), count, [dtype] * outputs, []
        )

        def gradient(*upstream):
            return _gradients_tensorflow(one, inputs, ends[0], upstream, count, fuse)

        return tuple(results), gradient

    return run(*given)


def _at(index, inputs, rows):
    """Returns the inputs of a chunk: its own of the first `rows` inputs, and all others as they are."""
    return [each[index] if place < rows else each for place, each in enumerate(inputs)]


def _loop_tensorflow(body, count, dtypes, sums):
    """Returns the first results of all steps, each stacked, and the sums of the others.

    Args:
        body: Called with the number of the step; returns a list of tensors to stack and one of tensors to add up.
        count: Number of steps.
        dtypes: Of the tensors to stack.
        sums: What the sums begin with, in the dtypes in which they are added up.
    """
    tf = importlib.import_module("tensorflow")
    arrays = [tf.TensorArray(dtype, size=count) for dtype in dtypes]

    def step(index, arrays, sums):
        written, added = body(index)
        arrays = [array.write(index, value) for array, value in zip(arrays, written, strict=True)]
        return index + 1, arrays, [old + tf.cast(new, old.dtype) for old, new in zip(sums, added, strict=True)]

    _, arrays, sums = tf.while_loop(
        lambda index, *_: index < count, step, (0, arrays, sums), parallel_iterations=1, maximum_iterations=count
    )
    return [array.stack() for array in arrays], sums


def _gradients_tensorflow(one, inputs, rows, upstream, count, fuse):
    """Returns the gradient of each input: by chunk for the first `rows` inputs, summed over the chunks for the others.

    Args:
        one: Called with the number of a chunk and its inputs; returns its results.
        inputs: Of all chunks; integers have no gradient.
        rows: How many of the inputs are chunks.
        upstream: Gradients of the results of all chunks.
        count: Number of chunks.
        fuse: Whether XLA compiles the loop.
    """
    tf = importlib.import_module("tensorflow")
    kinds = [_kind(each, place < rows) for place, each in enumerate(inputs)]

    def body(index):
        local = [tf.identity(each) for each in _at(index, inputs, rows)]
        own = _of_kind("row", kinds, local)
        sources = [*own, *_of_kind("shared", kinds, local)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            found = one(index, local)
        found = tape.gradient(found, sources, [each[index] for each in upstream], unconnected_gradients="zero")
        found = [tf.convert_to_tensor(each) for each in found]
        return found[: len(own)], found[len(own) :]

    total = _of_kind("shared", kinds, inputs)
    # Sums over many chunks lose too much in half precision.
    zeros = [tf.zeros_like(each, dtype=keras.backend.result_type(each.dtype.name, "float32")) for each in total]
    sweep = functools.partial(
        _loop_tensorflow, body, count, [each.dtype for each in _of_kind("row", kinds, inputs)], zeros
    )
    by_chunk, sums = tf.function(sweep, jit_compile=True, autograph=False)() if fuse else sweep()
    sums = [tf.cast(each, like.dtype) for each, like in zip(sums, total, strict=True)]
    found = {"row": iter(by_chunk), "shared": iter(sums), "integer": itertools.repeat(None)}
    return [next(found[kind]) for kind in kinds]


def _kind(tensor, by_row):
    if not tensor.dtype.is_floating:
        return "integer"
    return "row" if by_row else "shared"


def _of_kind(kind, kinds, tensors):
    return [tensor for tensor, own in zip(tensors, kinds, strict=True) if own == kind]


def has_deferred_products():
    """Returns whether `loop_with_products` is to be used here: accelerators have kernels for whole recurrent layers."""
    if keras.backend.backend() != "tensorflow":
        return False
    tf = importlib.import_module("tensorflow")
    return not any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))


NO_SECOND_DERIVATIVES = (
    "In training, recurrent layers have first derivatives alone; keras.layers.GRU and keras.layers.LSTM have others."
)


def loop_with_products(step, inputs, states, weights):
    """Returns the outputs of all steps [T, B, D] and the last states; see `zoo.layers.recurrent.loops.run`.

    Args:
        step: See there.
        inputs: Tensors [T, B, ...].
        states: Tensors with the batch first.
        weights: `(kernel [D, K], bias [K] or None)` by name.
    """
    tf = importlib.import_module("tensorflow")
    length, batch = tf.unstack(tf.shape(inputs[0])[:2])
    factors = {}  # what the weights were multiplied with at all steps, [T, B, D]; known behind the loop

    def addends(name, kernel, bias):
        @tf.custom_gradient
        def zeros(kernel):
            def gradient(upstream):
                left = tf.reshape(factors[name], [-1, kernel.shape[0]])
                found = tf.matmul(left, tf.reshape(upstream, [-1, kernel.shape[1]]), transpose_a=True)
                return tf.raw_ops.PreventGradient(input=found, message=NO_SECOND_DERIVATIVES)

            return tf.zeros([length, batch, kernel.shape[1]], kernel.dtype), gradient

        return zeros(kernel) if bias is None else zeros(kernel) + bias

    def unstack(tensor):
        return tf.TensorArray(tensor.dtype, length, element_shape=tensor.shape[1:]).unstack(tensor)

    inputs = [unstack(each) for each in inputs]
    added = {name: unstack(addends(name, *weight)) for name, weight in weights.items()}
    constants = {name: tf.stop_gradient(kernel) for name, (kernel, _) in weights.items()}
    # For few rows a product in float32 with a matrix that is stored the other way round takes nearly twice the time.
    turned = {name: tf.transpose(kernel) for name, kernel in constants.items() if kernel.dtype == tf.float32}

    def multiply(name, rows):
        @tf.custom_gradient
        def times(rows):
            return rows @ constants[name], lambda upstream: upstream @ turned[name]

        return times(rows) if name in turned else rows @ constants[name]

    def turn(index, states, written):
        used = {}

        def product(name, rows):
            used[name] = rows
            return multiply(name, rows) + added[name].read(index)

        output, states = step([each.read(index) for each in inputs], list(states), product)
        values = [output, *(tf.stop_gradient(used[name]) for name in weights)]
        return index + 1, states, [array.write(index, value) for array, value in zip(written, values, strict=True)]

    dtype = states[0].dtype
    written = [tf.TensorArray(dtype, length) for _ in range(1 + len(weights))]
    _, states, written = tf.while_loop(
        lambda index, *_: index < length,
        turn,
        (0, list(states), written),
        parallel_iterations=1,
        maximum_iterations=length,
    )
    outputs, *lefts = (array.stack() for array in written)
    factors.update(zip(weights, lefts, strict=True))
    return outputs, list(states)
