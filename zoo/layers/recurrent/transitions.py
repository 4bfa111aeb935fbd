"""Deep transitions: a recurrent state that is updated several times in one step."""

import keras
from keras import ops

from zoo.layers.core.base import SavesOptions
from zoo.layers.core.checks import check_cell, check_size
from zoo.layers.recurrent.loops import deferred_step, deferred_weights
from zoo.layers.recurrent.states import state_sizes


@keras.saving.register_keras_serializable(package="attention_zoo")
class TransitionCell(SavesOptions):
    """GRU without inputs, whose state depends on its previous state alone.

        [z, r, u] = U s + b                                  [B, 3 · units]
        s' = σ(z) ⊙ s + (1 − σ(z)) ⊙ tanh(σ(r) ⊙ u)          [B, units]

    Args:
        units: Size of the state, a positive integer.

    Call arguments:
        state: s, [B, units].

    Returns:
        s', [B, units].

    Reference:
        Miceli Barone et al. 2017, "Deep Architectures for Neural Machine Translation", section 2.1 (transition GRUs),
        https://arxiv.org/abs/1707.07631
    """

    saved_options = ("units",)

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = check_size("units", units)

    def build(self, state_shape):
        shape = (self.units, 3 * self.units)
        self.recurrent_kernel = self.add_weight(shape=shape, initializer="orthogonal", name="recurrent_kernel")
        self.bias = self.add_weight(shape=shape[1:], initializer="zeros", name="bias")

    def call(self, state):
        return self._updated(state, state @ ops.convert_to_tensor(self.recurrent_kernel) + self.bias)

    def _updated(self, state, product):
        z, r, candidate = ops.split(product, 3, axis=-1)
        candidate = ops.tanh(ops.sigmoid(r) * candidate)
        return candidate + ops.sigmoid(z) * (state - candidate)

    def deferred_weights(self, name):
        """See `zoo.layers.recurrent.loops.deferred_weights`."""
        return {f"{name}/recurrent_kernel": tuple(map(ops.convert_to_tensor, (self.recurrent_kernel, self.bias)))}

    def deferred_step(self, name, state, product):
        """Returns s' with a product of `zoo.layers.recurrent.loops.run`."""
        return self._updated(state, product(f"{name}/recurrent_kernel", state))


@keras.saving.register_keras_serializable(package="attention_zoo")
class DeepTransitionCell(SavesOptions):
    """Recurrent cell with transitions of the state within each step: `s_t = T_n(… T_1(cell(x_t, s_{t−1})))`.

    Transitions deepen the path from one state to the next by n layers; a stack of cells deepens the path from inputs to
    outputs.

    Args:
        cell: A recurrent cell with one state, such as `keras.layers.GRUCell`; only this cell reads the inputs.
        num_transitions: n, the number of `TransitionCell`s, a positive integer.

    Call arguments:
        inputs: x_t, [B, D].
        states: A list of s_{t−1} [B, units].
        training: Passed to the cell.

    Returns:
        s_t and the new states, `[s_t]`.

    Raises:
        ValueError: If `cell` is not a recurrent cell, or has several states, like an LSTM cell.

    Example:
        >>> import keras, numpy as np
        >>> from zoo.layers import DeepTransitionCell
        >>> cell = DeepTransitionCell(keras.layers.GRUCell(5), num_transitions=2)
        >>> keras.layers.RNN(cell)(np.ones((2, 6, 4), "float32")).shape
        TensorShape([2, 5])

    Reference:
        Pascanu et al. 2014, "How to Construct Deep Recurrent Neural Networks", section 3.3 (DT-RNN),
        https://arxiv.org/abs/1312.6026;
        Miceli Barone et al. 2017, section 2.2, https://arxiv.org/abs/1707.07631
    """

    saved_options = ("cell", "num_transitions")

    def __init__(self, cell, num_transitions, **kwargs):
        super().__init__(**kwargs)
        sizes = state_sizes(check_cell(cell))
        if len(sizes) > 1:
            raise ValueError(f"`cell` must have one state. Received: {type(cell).__name__} with {len(sizes)} states.")
        self.cell = cell
        self.num_transitions = check_size("num_transitions", num_transitions)
        self.transitions = [
            TransitionCell(sizes[0], dtype=self.dtype_policy, name=f"transition_{number}")
            for number in range(num_transitions)
        ]
        self.state_size = self.output_size = sizes[0]

    def build(self, input_shape):
        for layer, shape in [(self.cell, input_shape), *((cell, (None, self.state_size)) for cell in self.transitions)]:
            if not layer.built:  # a reloaded layer is built already
                layer.build(shape)

    def call(self, inputs, states, training=None):
        states = states if isinstance(states, (list, tuple)) else [states]
        state, _ = self.cell(inputs, list(states), training=training)
        for transition in self.transitions:
            state = transition(state)
        return state, [state]

    def deferred_weights(self, name):
        """See `zoo.layers.recurrent.loops.deferred_weights`."""
        weights = deferred_weights(self.cell, f"{name}/cell")
        if weights is None:
            return None
        for number, transition in enumerate(self.transitions):
            weights |= transition.deferred_weights(f"{name}/{number}")
        return weights

    def deferred_step(self, name, inputs, states, product):
        """See `zoo.layers.recurrent.loops.deferred_step`."""
        (state,) = deferred_step(self.cell, f"{name}/cell", inputs, states, product)
        for number, transition in enumerate(self.transitions):
            state = transition.deferred_step(f"{name}/{number}", state, product)
        return [state]
