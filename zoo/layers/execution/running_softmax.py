"""A softmax over tiles of queries × keys, of which only one is in memory at a time; see `zoo.layers.execution.tiles`.

Keras has no operation for a loop with custom gradients, nor for derivatives of a function in such a loop. This module
therefore has a part for TensorFlow and a part for JAX.
"""

import importlib

import keras
from keras import ops

from zoo.layers.core.graphs import autocasting
from zoo.layers.core.softmax import LOWEST_SCORE


def has_running_softmax():
    """Returns whether this backend has `running_softmax`."""
    return keras.backend.backend() in _BACKENDS


def running_softmax(score, total, rows, columns, cells, visible, variables, dtype):
    """Returns `softmax(scores) · values`, tile by tile, and which queries have an unmasked key.

    Args:
        score: Called with the tensors of a tile, by name, and whether the tile is masked; returns scores
            [..., rows, columns] in float32 or wider, and a mask that broadcasts to them, or `None`.
        total: Called with weights in `dtype` and the tensors of a tile; returns the weighted sum of its values
            [..., rows, H], a linear function of the weights.
        rows: Dict of tensors with a part for each row of tiles, `query` [I, ..., rows, D] among them.
        columns: Dict of tensors with a part for each column of tiles, `value` [J, ..., columns, H] among them.
        cells: Dict of tensors with a part for each tile, [I · J, ...].
        visible: Which tiles may have unmasked pairs, and which have no masked pair, both boolean [I · J].
        variables: The weights that `score` and `total` read.
        dtype: Dtype of the weights and the output.

    Returns:
        Output [I, ..., rows, H] and 1 or 0 for each query [I, ..., rows, 1], both in `dtype`.
    """
    groups = {"row": rows, "column": columns, "cell": cells}
    kinds = {name: kind for kind, tensors in groups.items() for name in tensors}
    tiles = _BACKENDS[keras.backend.backend()](
        autocasting(dtype, score), autocasting(dtype, total), kinds, columns["value"].shape[0], variables, dtype
    )
    any_visible, all_visible = visible
    orders = [_order(all_visible), _order(ops.logical_and(any_visible, ops.logical_not(all_visible)))]
    inputs = [*rows.values(), *columns.values(), *cells.values()]
    return tiles.run(inputs, [variable.value for variable in variables], orders)


def _order(selected):
    """Returns the numbers of the selected tiles, followed by those of the others, and how many are selected."""
    selected = ops.cast(selected, "int32")
    numbers = ops.arange(selected.shape[0], dtype="int32")
    return ops.argsort(numbers - selected * selected.shape[0]), ops.sum(selected)


class _RunningSoftmax:
    """The passes over tiles, independent of the backend; see `running_softmax` for the arguments."""

    def __init__(self, score, total, kinds, num_columns, variables, dtype):
        self.score, self.total, self.kinds, self.num_columns = score, total, kinds, num_columns
        self.variables, self.dtype = variables, dtype
        self.wide = keras.backend.result_type(dtype, "float32")

    def run(self, inputs, values, orders):
        """Returns the results of `running_softmax`; the gradients of inputs and values are those of `_backward`."""
        raise NotImplementedError

    def loop(self, count, most, body, state):
        """Returns the state after `count` steps of `body(step, state)`; `most` is an upper bound of `count`."""
        raise NotImplementedError

    def array(self, tensor):
        """Returns an array of the parts of a tensor [I, ...], for `read`, `write` and `stack`."""
        raise NotImplementedError

    def read(self, array, index):
        raise NotImplementedError

    def write(self, array, index, part):
        raise NotImplementedError

    def stack(self, array):
        raise NotImplementedError

    def pull_back(self, function, sources):
        """Returns both results of `function(*sources)`, and a function from the gradient of the first to the sources'.

        The gradient of a source on which the result does not depend may be `None`.
        """
        raise NotImplementedError

    def _over_tiles(self, orders, body, state):
        """Returns the state after `body(tile, state, is_masked)` of all tiles with unmasked pairs."""
        for (order, count), is_masked in zip(orders, (False, True), strict=True):

            def step(number, state, order=order, is_masked=is_masked):
                return body(order[number], state, is_masked)

            state = self.loop(count, order.shape[0], step, state)
        return state

    def _indices_of(self, tile):
        """Returns the index of a tile in each kind of tensor."""
        return {"row": tile // self.num_columns, "column": tile % self.num_columns, "cell": tile}

    def _parts(self, inputs, tile):
        """Returns the parts of the inputs for a tile."""
        index = self._indices_of(tile)
        return [tensor[index[kind]] for tensor, kind in zip(inputs, self.kinds.values(), strict=True)]

    def _call(self, function, values, *arguments):
        """Calls `score` or `total` with values of the variables."""
        with keras.StatelessScope(state_mapping=list(zip(self.variables, values, strict=True))):
            return function(*arguments)

    def _named(self, parts):
        return dict(zip(self.kinds, parts, strict=True))

    def _weights(self, scores, mask, largest):
        weights = ops.exp(scores - largest)
        return weights if mask is None else ops.where(mask, weights, ops.zeros_like(weights))

    def _forward(self, inputs, values, orders):
        """Returns the output and for each query the largest score and the sum of the weights relative to it."""
        tensors = self._named(inputs)
        vectors = ops.zeros_like(tensors["query"][..., :1], self.wide)
        width = tensors["value"].shape[-1]
        state = [vectors + LOWEST_SCORE, vectors, ops.repeat(vectors, width, axis=-1)]

        def body(tile, state, is_masked):
            row = self._indices_of(tile)["row"]
            parts = self._named(self._parts(inputs, tile))
            scores, mask = self._call(self.score, values, parts, is_masked)
            if mask is not None:
                scores = ops.where(mask, scores, ops.cast(LOWEST_SCORE, scores.dtype))
            before, sums, output = (self.read(array, row) for array in state)
            largest = ops.maximum(before, ops.max(scores, axis=-1, keepdims=True))
            weights = self._weights(scores, mask, largest)
            shrink = ops.exp(before - largest)
            addend = self._call(self.total, values, ops.cast(weights, self.dtype), parts)
            sums = sums * shrink + ops.sum(weights, axis=-1, keepdims=True)
            output = output * shrink + ops.cast(addend, self.wide)
            return [self.write(array, row, new) for array, new in zip(state, (largest, sums, output), strict=True)]

        state = self._over_tiles(orders, body, [self.array(tensor) for tensor in state])
        largest, sums, output = (self.stack(array) for array in state)
        return output * _inverse(sums), largest, sums

    def _results(self, output, sums):
        """Returns the results of `running_softmax`."""
        return ops.cast(output, self.dtype), ops.cast(sums > 0, self.dtype)

    def _backward(self, inputs, values, orders, forward, upstream):
        """Returns the gradients of all inputs and values; those of integers are `None`.

        `forward` are the results of `_forward`, and `upstream` is the gradient of the output.
        """
        output, largest, sums = forward
        factor = _inverse(sums)
        upstream = ops.cast(upstream, self.wide)
        inner = ops.sum(upstream * output, axis=-1, keepdims=True) * factor
        of_rows = largest, ops.cast(upstream * factor, self.dtype), inner
        is_float = [keras.backend.is_float_dtype(tensor.dtype) for tensor in inputs]
        kinds = [kind for kind, has_gradient in zip(self.kinds.values(), is_float, strict=True) if has_gradient]
        floats = [tensor for tensor, has_gradient in zip(inputs, is_float, strict=True) if has_gradient]

        def body(tile, state, is_masked):
            arrays, totals = state
            index, parts = self._indices_of(tile), self._parts(inputs, tile)
            gradients = self._tile_gradients(
                parts, is_float, values, is_masked, *(tensor[index["row"]] for tensor in of_rows)
            )
            arrays = [
                array
                if new is None
                else self.write(array, index[kind], self.read(array, index[kind]) + ops.cast(new, self._sum_dtype(new)))
                for array, kind, new in zip(arrays, kinds, gradients[: len(arrays)], strict=True)
            ]
            totals = [
                total if new is None else total + ops.cast(new, total.dtype)
                for total, new in zip(totals, gradients[len(arrays) :], strict=True)
            ]
            return arrays, totals

        # Sums over many tiles lose too much precision in half precision.
        zeros = [ops.zeros_like(tensor, self._sum_dtype(tensor)) for tensor in (*floats, *values)]
        arrays, totals = self._over_tiles(
            orders, body, ([self.array(zero) for zero in zeros[: len(floats)]], zeros[len(floats) :])
        )
        stacked = iter([self.stack(array) for array in arrays])
        sums = [next(stacked) if has_gradient else None for has_gradient in is_float] + list(totals)
        return [
            None if total is None else ops.cast(total, tensor.dtype)
            for total, tensor in zip(sums, (*inputs, *values), strict=True)
        ]

    def _sum_dtype(self, tensor):
        return keras.backend.result_type(keras.backend.standardize_dtype(tensor.dtype), "float32")

    def _tile_gradients(self, parts, is_float, values, is_masked, largest, upstream, inner):
        """Returns the gradients of the floating point parts and of the values."""
        floats = [part for part, has_gradient in zip(parts, is_float, strict=True) if has_gradient]

        def split(sources):
            rest = iter(sources)
            tensors = [next(rest) if has_gradient else part for part, has_gradient in zip(parts, is_float, strict=True)]
            return self._named(tensors), list(rest)

        def score(*sources):
            named, values = split(sources)
            return self._call(self.score, values, named, is_masked)

        def total(weights, *sources):
            named, values = split(sources)
            return self._call(self.total, values, ops.cast(weights, self.dtype), named), None

        sources = [*floats, *values]
        (scores, mask), from_scores = self.pull_back(score, sources)
        weights = self._weights(scores, mask, largest)
        (output, _), from_output = self.pull_back(total, [weights, *sources])
        of_weights, *of_total = from_output(ops.cast(upstream, output.dtype))
        of_scores = from_scores(weights * (ops.cast(of_weights, weights.dtype) - inner))
        return [_sum_of(pair) for pair in zip(of_scores, of_total, strict=True)]


def _inverse(sums):
    """Returns 1 / sums, with zeros where a sum is zero."""
    return ops.where(sums > 0, 1 / ops.where(sums > 0, sums, ops.ones_like(sums)), ops.zeros_like(sums))


def _sum_of(gradients):
    """Returns the sum of those gradients that are not `None`, as a dense tensor, or `None`."""
    present = [ops.convert_to_tensor(gradient, sparse=False) for gradient in gradients if gradient is not None]
    return sum(present[1:], present[0]) if present else None


class _OnTensorFlow(_RunningSoftmax):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.tf = importlib.import_module("tensorflow")

    def run(self, inputs, values, orders):
        count = len(inputs)

        @self.tf.custom_gradient
        def attend(*tensors):
            inputs, values = tensors[:count], tensors[count:]
            forward = self._forward(inputs, values, orders)

            def gradient(upstream, _):
                return self._backward(inputs, values, orders, forward, upstream)

            return self._results(forward[0], forward[2]), gradient

        # One tensor may be two inputs, key and value, and each input requires its own gradient.
        return attend(*(self.tf.identity(tensor) for tensor in (*inputs, *values)))

    def loop(self, count, most, body, state):
        _, state = self.tf.while_loop(
            lambda step, _: step < count,
            lambda step, state: (step + 1, body(step, state)),
            (0, state),
            parallel_iterations=1,
            maximum_iterations=most,
        )
        return state

    def array(self, tensor):
        size, *shape = tensor.shape
        array = self.tf.TensorArray(tensor.dtype, size, element_shape=shape, clear_after_read=False)
        return array.unstack(tensor)

    def read(self, array, index):
        return array.read(index)

    def write(self, array, index, part):
        return array.write(index, part)

    def stack(self, array):
        return array.stack()

    def pull_back(self, function, sources):
        sources = [self.tf.identity(source) for source in sources]
        with self.tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            results = function(*sources)
        return results, lambda upstream: tape.gradient(results[0], sources, upstream)


class _OnJAX(_RunningSoftmax):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.jax = importlib.import_module("jax")

    def run(self, inputs, values, orders):
        @self.jax.custom_vjp
        def attend(inputs, values, orders):
            return forward(inputs, values, orders)[0]

        def forward(inputs, values, orders):
            results = self._forward(inputs, values, orders)
            return self._results(results[0], results[2]), (inputs, values, orders, results)

        def backward(residuals, upstreams):
            inputs, values, orders, results = residuals
            gradients = self._backward(inputs, values, orders, results, upstreams[0])
            return gradients[: len(inputs)], gradients[len(inputs) :], None

        attend.defvjp(forward, backward)
        try:
            return attend(inputs, values, orders)
        except TypeError as error:
            if "forward-mode" not in str(error):
                raise
            raise ValueError(
                "Attention in tiles has no forward-mode derivatives, which `jax.jvp` requires: create the layer with "
                '`implementation="dense"`.'
            ) from error

    def loop(self, count, most, body, state):
        return self.jax.lax.fori_loop(0, count, body, state)

    def array(self, tensor):
        return tensor

    def read(self, array, index):
        return array[index]

    def write(self, array, index, part):
        return self.jax.lax.dynamic_update_index_in_dim(array, part, index, 0)

    def stack(self, array):
        return array

    def pull_back(self, function, sources):
        result, gradients, other = self.jax.vjp(function, *sources, has_aux=True)
        return (result, other), gradients


_BACKENDS = {"tensorflow": _OnTensorFlow, "jax": _OnJAX}
