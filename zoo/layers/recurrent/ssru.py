"""The simpler simple recurrent unit: a recurrence without matrix products between time steps."""

import keras
from keras import ops

from zoo.layers.attention.self_mixing import SelfMixing
from zoo.layers.attention.state_chunks import decaying_sums
from zoo.layers.attention.wide_state import WideState
from zoo.layers.core.projections import apply_positionwise, projection

# Positions in a chunk, within which there is a factor for each pair and feature.
CHUNK_SIZE = 16


@keras.saving.register_keras_serializable(package="attention_zoo")
class SSRU(WideState, SelfMixing):
    """A state of each feature that decays by a gate: `cₜ = fₜ ⊙ cₜ₋₁ + (1 − fₜ) ⊙ W xₜ`, `yₜ = relu(cₜ)`.

    `fₜ = sigmoid(W_f xₜ + b_f)`. All matrix products are outside the recurrence: they are computed for all positions at
    once, and the states in parallel within chunks of positions. A step costs 2 D², and the cache is the state, in
    float32 or wider. A masked position does not change the state. A Transformer block adds the residual connection and
    the normalisation.

    Args:
        use_bias: Whether the gate has the bias b_f.
        kernel_initializer: Initializer of W and W_f.

    Call arguments and results: see `SelfMixing`; there are no weights to return.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SSRU
        >>> SSRU()(np.ones((2, 3, 4), "float32"), use_causal_mask=True).shape
        TensorShape([2, 3, 4])

    Reference:
        Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation", section
        3.1, equations 3-5, https://aclanthology.org/D19-5632
    """

    saved_options = ("use_bias", "kernel_initializer")
    has_weights = False

    def __init__(self, use_bias=True, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.size = query_shape[-1]
        self.input_dense = projection(self, self.size, "input", False, self.kernel_initializer)
        self.forget_dense = projection(self, self.size, "forget", self.use_bias, self.kernel_initializer)
        self.input_dense.build(query_shape)
        self.forget_dense.build(query_shape)

    def mix(self, inputs, real, training, cache, return_attention_scores):
        projected, forget = self.widen(
            *(apply_positionwise(dense, inputs) for dense in (self.input_dense, self.forget_dense))
        )
        log_decay, terms = -ops.softplus(-forget), ops.sigmoid(-forget) * projected
        if real is not None:
            log_decay, terms = (ops.where(real[..., None], x, ops.zeros_like(x)) for x in (log_decay, terms))
        state = None if cache is None else self.from_stored(cache["state"])
        states, state = decaying_sums(terms, log_decay, state, CHUNK_SIZE)
        if cache is not None:
            index = cache["index"] + ops.shape(inputs)[1]
            cache = {"state": self.to_stored(state), "index": index}
        return ops.cast(ops.relu(states), self.compute_dtype), None, cache

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache: the state [B, D] (see `WideState`), and the number of positions, `index`.

        Args:
            batch_size: B.
            length: Not used: the size of the state does not depend on the number of positions.
        """
        return {"state": self.stored_zeros((batch_size, self.size)), "index": ops.zeros((), dtype="int32")}
