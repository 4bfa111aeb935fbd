"""Loops with custom gradients, by backend: chunks that the backward pass recomputes, recurrent steps, and scans.

Keras has no operation for a loop that stores nothing for the backward pass (`checkpointed_map`), nor for one that
computes the gradients of its weights after its last step (`deferred_gradient_loop`).
"""

import importlib
import itertools

import keras
from keras import ops

from zoo.layers.core.graphs import autocasting


def checkpointed_map(function, rows, shared, variables, num_outputs, dtype, chunk_size, jit_backward=False):
    """Returns `function` of all rows, computed chunk by chunk, and recomputed chunk by chunk in the backward pass.

    The chunks are computed one after another, so that the intermediate results of only one of them are in memory.

    Args:
        function: Called with a chunk of `rows`, with `shared` and with the number of the chunk; returns a tuple of
            tensors [..., chunk_size, D].
        rows: Dict of tensors [..., T, D].
        shared: Dict of tensors that every chunk reads.
        variables: The weights that `function` reads.
        num_outputs: Number of tensors that `function` returns.
        dtype: Their dtype.
        chunk_size: Rows in a chunk, an integer or a scalar tensor.
        jit_backward: Whether XLA compiles the backward pass on TensorFlow, if it is part of a graph of known sizes.
            This pays if `function` creates large tensors element by element. The forward pass is never compiled, since
            exported graphs must run without XLA.
    """
    length = ops.shape(next(iter(rows.values())))[-2]
    count = (length + chunk_size - 1) // chunk_size
    count = count if isinstance(count, int) else ops.maximum(count, 1)  # results of zero rows have a shape, too
    chunks = {name: split_chunks(tensor, count, chunk_size) for name, tensor in rows.items()}
    run = {"tensorflow": _map_tensorflow, "jax": _map_jax, "torch": _map_torch}[keras.backend.backend()]
    results = run(autocasting(dtype, function), chunks, shared, variables, num_outputs, dtype, count, jit_backward)
    return tuple(join_chunks(result, length) for result in results)


def split_chunks(tensor, count, size):
    """Returns [count, ..., size, D] from [..., T, D]; the last chunk is padded with copies of the last row.

    The padding is cut off later, but its gradient must be finite, which no score guarantees for zeros.
    """
    shape = list(ops.shape(tensor))
    last = tensor[..., -1:, :]
    if not isinstance(shape[-2], int):  # there may be no last row
        zeros = ops.zeros((*shape[:-2], 1, shape[-1]), dtype=tensor.dtype)
        last = ops.concatenate([zeros, last], axis=-2)[..., -1:, :]
    padding = ops.broadcast_to(last, (*shape[:-2], count * size - shape[-2], shape[-1]))
    padded = ops.concatenate([tensor, padding], axis=-2)
    chunks = ops.reshape(padded, (*shape[:-2], count, size, shape[-1]))
    return ops.moveaxis(chunks, -3, 0)


def join_chunks(chunks, length):
    """Returns [..., T, D] from [count, ..., size, D]."""
    chunks = ops.moveaxis(chunks, 0, -3)
    shape = ops.shape(chunks)
    rows = ops.reshape(chunks, (*shape[:-3], shape[-3] * shape[-2], shape[-1]))[..., :length, :]
    # After chunks of unknown size the number of rows is unknown, although `length` may be known.
    return ops.reshape(rows, (*shape[:-3], length, shape[-1]))


def _with_wide_gradients(function, shared):
    """Returns `function` of tensors `shared` in float32 or wider, in which gradients add up, and these tensors."""
    dtypes = {name: keras.backend.standardize_dtype(tensor.dtype) for name, tensor in shared.items()}

    def cast_back(rows, shared, index):
        return function(rows, {name: ops.cast(tensor, dtypes[name]) for name, tensor in shared.items()}, index)

    wide = {name: ops.cast(shared[name], keras.backend.result_type(dtype, "float32")) for name, dtype in dtypes.items()}
    return cast_back, wide


def _map_jax(function, chunks, shared, variables, num_outputs, dtype, count, jit_backward):
    jax = importlib.import_module("jax")
    function, shared = _with_wide_gradients(function, shared)
    checkpointed = jax.checkpoint(lambda chunk: function(chunk[0], shared, chunk[1]))
    return jax.lax.map(checkpointed, (chunks, ops.arange(count, dtype="int32")))


def _map_torch(function, chunks, shared, variables, num_outputs, dtype, count, jit_backward):
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
    function, shared = _with_wide_gradients(function, shared)

    def run_chunk(index):
        return function({name: chunk[index] for name, chunk in chunks.items()}, shared, index)

    if next(iter(chunks.values())).is_meta:  # Keras infers shapes, which are the same for all chunks
        results = [run_chunk(0)] * count
    else:
        results = [checkpoint(run_chunk, index, use_reentrant=False) for index in range(count)]
    return [ops.stack(outputs) for outputs in zip(*results, strict=True)]


def _map_tensorflow(function, chunks, shared, variables, num_outputs, dtype, count, jit_backward):
    tf = importlib.import_module("tensorflow")
    num_chunked, num_tensors = len(chunks), len(chunks) + len(shared)

    def run_chunk(index, inputs):
        rows, common, values = inputs[:num_chunked], inputs[num_chunked:num_tensors], inputs[num_tensors:]
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(dict(zip(chunks, rows, strict=True)), dict(zip(shared, common, strict=True)), index)

    # One tensor may be two inputs, key and value, and each input requires its own gradient.
    inputs = [*chunks.values(), *shared.values(), *(variable.value for variable in variables)]
    inputs = [tf.identity(tensor) for tensor in inputs]
    static = all(tensor.shape.is_fully_defined() for tensor in inputs) and not tf.executing_eagerly()

    @tf.custom_gradient
    def run(*inputs):
        def body(index):
            return run_chunk(index, _inputs_of_chunk(index, inputs, num_chunked)), []

        results, _ = _loop_tensorflow(body, count, [dtype] * num_outputs, [])

        def gradient(*upstream):
            return _gradients_tensorflow(run_chunk, inputs, num_chunked, upstream, count, jit_backward and static)

        return tuple(results), gradient

    return run(*inputs)


def _inputs_of_chunk(index, inputs, num_chunked):
    """Returns the inputs of a chunk: its part of the first `num_chunked` inputs, and all of the others."""
    return [tensor[index] if number < num_chunked else tensor for number, tensor in enumerate(inputs)]


def _loop_tensorflow(body, count, dtypes, initial_sums):
    """Returns the stacked results of all steps, and sums over all steps.

    The body is called with the number of the step. It returns a list of tensors to stack, in the given dtypes, and a
    list of tensors to add up, in the dtypes of their initial values.
    """
    tf = importlib.import_module("tensorflow")
    arrays = [tf.TensorArray(dtype, size=count) for dtype in dtypes]
    shapes = []  # of the results of a step, which the arrays do not store

    def step(index, arrays, sums):
        stacked, addends = body(index)
        shapes[:] = [value.shape for value in stacked]
        arrays = [array.write(index, value) for array, value in zip(arrays, stacked, strict=True)]
        return index + 1, arrays, [total + tf.cast(new, total.dtype) for total, new in zip(sums, addends, strict=True)]

    _, arrays, sums = tf.while_loop(
        lambda index, *_: index < count,
        step,
        (0, arrays, initial_sums),
        parallel_iterations=1,
        maximum_iterations=count,
    )
    stacked = [array.stack() for array in arrays]
    return [tf.ensure_shape(value, [None, *shape]) for value, shape in zip(stacked, shapes, strict=True)], sums


def _gradients_tensorflow(run_chunk, inputs, num_chunked, upstream, count, jit):
    """Returns the gradient of each input: by chunk for the first `num_chunked`, summed over the chunks for the others.

    `run_chunk` is called with the number of a chunk and its inputs; integer inputs have no gradient. With `jit`, XLA
    compiles the loop.
    """
    tf = importlib.import_module("tensorflow")
    kinds = [_gradient_kind(tensor, number < num_chunked) for number, tensor in enumerate(inputs)]
    shared = _of_kind("shared", kinds, inputs)
    # Sums over many chunks lose too much precision in half precision.
    zeros = [tf.zeros_like(tensor, keras.backend.result_type(tensor.dtype.name, "float32")) for tensor in shared]
    chunked_dtypes = [tensor.dtype for tensor in _of_kind("chunked", kinds, inputs)]

    def run_loop(*tensors):
        inputs, upstream = tensors[: len(kinds)], tensors[len(kinds) :]

        def body(index):
            local = [tf.identity(tensor) for tensor in _inputs_of_chunk(index, inputs, num_chunked)]
            chunked = _of_kind("chunked", kinds, local)
            sources = [*chunked, *_of_kind("shared", kinds, local)]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                results = run_chunk(index, local)
            gradients = tape.gradient(
                results, sources, [tensor[index] for tensor in upstream], unconnected_gradients="zero"
            )
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            return gradients[: len(chunked)], gradients[len(chunked) :]

        by_chunk, sums = _loop_tensorflow(body, count, chunked_dtypes, zeros)
        return [*by_chunk, *sums]

    results = (_compiled_tensorflow(run_loop) if jit else run_loop)(*inputs, *upstream)
    by_chunk, sums = results[: len(chunked_dtypes)], results[len(chunked_dtypes) :]
    sums = [tf.cast(total, tensor.dtype) for total, tensor in zip(sums, shared, strict=True)]
    gradients = {"chunked": iter(by_chunk), "shared": iter(sums), "integer": itertools.repeat(None)}
    return [next(gradients[kind]) for kind in kinds]


def _compiled_tensorflow(function):
    """Returns `function` of tensors, compiled by XLA, which stores nothing for the gradients of its loops.

    Its gradient is that of the uncompiled function, computed again.
    """
    tf = importlib.import_module("tensorflow")

    @tf.custom_gradient
    def run(*tensors):
        def gradient(*upstream):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([tensor for tensor in tensors if tensor.dtype.is_floating])
                results = function(*tensors)
            return tape.gradient(results, tensors, upstream)

        return tf.function(function, jit_compile=True, autograph=False)(*tensors), gradient

    return run


def _gradient_kind(tensor, chunked):
    if not tensor.dtype.is_floating:
        return "integer"
    return "chunked" if chunked else "shared"


def _of_kind(kind, kinds, tensors):
    return [tensor for tensor, tensor_kind in zip(tensors, kinds, strict=True) if tensor_kind == kind]


def defers_weight_gradients():
    """Returns whether to use `deferred_gradient_loop`: on TensorFlow without accelerators.

    Accelerators have kernels for whole recurrent layers.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    tf = importlib.import_module("tensorflow")
    return not any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))


NO_SECOND_DERIVATIVES = (
    "In training, recurrent layers have first derivatives only; use keras.layers.GRU or keras.layers.LSTM for others."
)


def deferred_gradient_loop(step, inputs, states, weights):
    """Returns the outputs of all steps [T, B, D] and the last states; see `zoo.layers.recurrent.loops.run`."""
    tf = importlib.import_module("tensorflow")
    length, batch = tf.unstack(tf.shape(inputs[0])[:2])
    left_factors = {}  # of the products of all steps with each kernel, [T, B, D]; filled after the loop

    def addends(name, kernel, bias):
        """Returns the bias at every step, [T, B, K]; its gradient includes that of the kernel's products."""

        @tf.custom_gradient
        def zeros(kernel):
            def gradient(upstream):
                left = tf.reshape(left_factors[name], [-1, kernel.shape[0]])
                product = tf.matmul(left, tf.reshape(upstream, [-1, kernel.shape[1]]), transpose_a=True)
                return tf.raw_ops.PreventGradient(input=product, message=NO_SECOND_DERIVATIVES)

            return tf.zeros([length, batch, kernel.shape[1]], kernel.dtype), gradient

        return zeros(kernel) if bias is None else zeros(kernel) + bias

    def unstack(tensor):
        return tf.TensorArray(tensor.dtype, length, element_shape=tensor.shape[1:]).unstack(tensor)

    inputs = [unstack(tensor) for tensor in inputs]
    added = {name: unstack(addends(name, *weight)) for name, weight in weights.items()}
    constants = {name: tf.stop_gradient(kernel) for name, (kernel, _) in weights.items()}
    # In float32, the product of few rows with a matrix that is transposed on the fly takes nearly twice the time.
    transposed = {name: tf.transpose(kernel) for name, kernel in constants.items() if kernel.dtype == tf.float32}

    def multiply(name, rows):
        @tf.custom_gradient
        def product(rows):
            return rows @ constants[name], lambda upstream: upstream @ transposed[name]

        return product(rows) if name in transposed else rows @ constants[name]

    def body(index, states, arrays):
        factors = {}

        def product(name, rows):
            factors[name] = rows
            return multiply(name, rows) + added[name].read(index)

        output, states = step([tensor.read(index) for tensor in inputs], list(states), product)
        values = [output, *(tf.stop_gradient(factors[name]) for name in weights)]
        return index + 1, states, [array.write(index, value) for array, value in zip(arrays, values, strict=True)]

    arrays = [tf.TensorArray(states[0].dtype, length) for _ in range(1 + len(weights))]
    _, states, arrays = tf.while_loop(
        lambda index, *_: index < length,
        body,
        (0, list(states), arrays),
        parallel_iterations=1,
        maximum_iterations=length,
    )
    outputs, *factors = (array.stack() for array in arrays)
    left_factors.update(zip(weights, factors, strict=True))
    return outputs, list(states)


def scan_states(step, state, inputs):
    """Returns the state before each step, stacked [C, ...], and the state after the last step.

    Keras' `ops.scan` sets no maximum number of steps on TensorFlow, without which XLA cannot compile the gradient.

    Args:
        step: Called with the state and a list of the inputs at a step; returns the next state.
        state: The first state, a tensor.
        inputs: Tensors [C, ...], C ≥ 1.
    """
    if any(isinstance(tensor, keras.KerasTensor) for tensor in [state, *inputs]):
        # Steps computed at once have the shapes and the number of operations of steps computed one after another.
        before = step(ops.broadcast_to(state, (inputs[0].shape[0], *state.shape)), inputs)
        return before, before[-1]
    if inputs[0].shape[0] == 1:  # every step of decoding
        return state[None], step(state, [tensor[0] for tensor in inputs])
    if keras.backend.backend() != "tensorflow":
        last, before = ops.scan(lambda state, current: (step(state, current), state), state, inputs)
        return before, last
    tf = importlib.import_module("tensorflow")
    count = ops.shape(inputs[0])[0]
    arrays = [tf.TensorArray(tensor.dtype, count, element_shape=tensor.shape[1:]).unstack(tensor) for tensor in inputs]
    before = tf.TensorArray(state.dtype, count, element_shape=state.shape)

    def body(index, state, before):
        return index + 1, step(state, [array.read(index) for array in arrays]), before.write(index, state)

    _, last, before = tf.while_loop(
        lambda index, *_: index < count, body, (0, state, before), parallel_iterations=1, maximum_iterations=count
    )
    return before.stack(), last
