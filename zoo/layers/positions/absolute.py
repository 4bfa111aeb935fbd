"""Absolute positions, added to the features or concatenated with them: sinusoidal, learned, integers."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.graphs import axis_size
from zoo.layers.positions.base import Positions, angles, check_positions, consecutive, rates
from zoo.row_selection import take


class AbsolutePositions(Positions):
    """Base of the absolute positions: `x + p` or, concatenated, `[x; p]`.

    A subclass overrides `encodings`.

    Args:
        concatenate: Whether the encodings are concatenated with the features instead of added.
        size: Size of concatenated encodings, a positive integer. Default: the number of features.

    Call arguments:
        inputs: [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of all rows instead, integers [T] or [B, T], such as those of packed texts.

    Returns:
        [B, T, D]; concatenated [B, T, D + size].

    Raises:
        ValueError: If there is a `size` without `concatenate`.
    """

    saved_options: tuple[str, ...] = ("concatenate", "size")
    needs = ("query_dim", "memory_dim")

    def __init__(self, concatenate=False, size=None, **kwargs):
        super().__init__(**kwargs)
        if size is not None and not concatenate:
            raise ValueError(
                f"`size` requires `concatenate=True`: added encodings have the size of the inputs. "
                f"Received: size={size}."
            )
        self.supports_masking = True
        self.concatenate = concatenate
        self.size = check_size("size", size, optional=True)

    def encodings(self, positions, size):
        """Returns the encodings of positions, [T, size] from int32 [T]."""
        raise NotImplementedError(f"{type(self).__name__} must override `encodings`.")

    def build(self, input_shape):
        self.sizes = {name: input_shape[-1] for name in self.needs}
        self.create_weights(**self.sizes)

    def encode(self, inputs, start_index=0):
        return self._encode_at(inputs, consecutive(start_index, axis_size(inputs, 1)))

    def _encode_at(self, inputs, positions):
        """Returns inputs [B, T, D] with the encodings of positions, int32 [T] or [B, T]."""
        size = self.size or inputs.shape[-1]
        if len(positions.shape) == 1:
            encodings = self.encodings(positions, size)
        else:
            flat = self.encodings(ops.reshape(positions, (-1,)), size)
            encodings = ops.reshape(flat, (*ops.shape(positions), size))
        encodings = ops.cast(encodings, inputs.dtype)
        if not self.concatenate:
            return inputs + encodings
        return ops.concatenate([inputs, ops.broadcast_to(encodings, (*ops.shape(inputs)[:2], size))], axis=-1)

    def encoded_size(self, size):
        return size + (self.size or size) if self.concatenate else size

    def call(self, inputs, start_index=0, positions=None):
        if positions is None:
            return self.encode(inputs, start_index)
        return self._encode_at(inputs, check_positions(positions, start_index, inputs.shape[1]))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.encoded_size(input_shape[-1]))


@keras.saving.register_keras_serializable(package="attention_zoo")
class SinusoidalPositions(AbsolutePositions):
    """Adds or concatenates sinusoids: `PE[p, 2i] = sin(p / w^(2i/D))`, `PE[p, 2i+1] = cos(p / w^(2i/D))`.

    Args:
        max_wavelength: w, a positive number.
        concatenate: Whether the encodings are concatenated with the features instead of added.
        size: Size of concatenated encodings, even. Default: the number of features.

    Call arguments:
        inputs: [B, T, D]; D must be even if it is the size of the encodings.
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of all rows instead, integers [T] or [B, T], such as those of packed texts.

    Returns:
        [B, T, D]; concatenated [B, T, D + size].

    Raises:
        ValueError: If the size of the encodings is odd.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SinusoidalPositions
        >>> print(np.round(SinusoidalPositions()(np.zeros((1, 1, 4), "float32"), start_index=0), 3))
        [[[0. 1. 0. 1.]]]

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5, https://arxiv.org/abs/1706.03762
    """

    saved_options = ("max_wavelength",)

    def __init__(self, max_wavelength=10000.0, concatenate=False, size=None, **kwargs):
        super().__init__(concatenate=concatenate, size=size, **kwargs)
        if max_wavelength <= 0:
            raise ValueError(f"`max_wavelength` must be positive. Received: max_wavelength={max_wavelength}.")
        if size is not None and size % 2:
            raise ValueError(f"`size` must be even. Received: size={size}.")
        self.max_wavelength = max_wavelength

    def create_weights(self, query_dim, memory_dim):
        for features in (query_dim, memory_dim):
            if self.size is None and features % 2:
                raise ValueError(
                    "The last axis must be even; otherwise pass an even `size` with `concatenate=True`. "
                    f"Received: a last axis of {features}."
                )

    def encodings(self, positions, size):
        phases = angles(positions, rates(size, self.max_wavelength))  # [T, size/2]
        return ops.reshape(ops.stack([ops.sin(phases), ops.cos(phases)], axis=-1), (-1, size))


@keras.saving.register_keras_serializable(package="attention_zoo")
class LearnedPositions(AbsolutePositions):
    """Adds or concatenates a learned vector for each position: `x_p + E[p]` or `[x_p; E[p]]`.

    Positions after the end of the table share its last row, and negative positions its first row. In an attention layer
    the queries are at the end of the keys: if there are more queries than keys, the first queries have negative
    positions and therefore the same vector. With `start_index=0` queries and keys both count from 0.

    Args:
        max_length: Rows of the table, a positive integer.
        concatenate: Whether the vectors are concatenated with the features instead of added.
        size: Size of concatenated vectors, a positive integer. Default: the number of features.
        initializer: Initializer of the table.

    Call arguments:
        inputs: [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of all rows instead, integers [T] or [B, T], such as those of packed texts.

    Returns:
        [B, T, D]; concatenated [B, T, D + size].

    Raises:
        ValueError: If the inputs are known to be longer than the table (on PyTorch their length is never known); or if
            queries and keys of an attention layer have different sizes and would require separate tables.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import LearnedPositions
        >>> LearnedPositions(max_length=7)(np.zeros((2, 3, 4), "float32")).shape
        TensorShape([2, 3, 4])

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1, https://arxiv.org/abs/1705.03122
    """

    saved_options = ("max_length", "initializer")

    def __init__(self, max_length, concatenate=False, size=None, initializer="glorot_uniform", **kwargs):
        super().__init__(concatenate=concatenate, size=size, **kwargs)
        self.max_length = check_size("max_length", max_length)
        self.initializer = keras.initializers.get(initializer)

    def create_weights(self, query_dim, memory_dim):
        if self.size is None and query_dim != memory_dim:
            raise ValueError(
                f"Queries and keys of different sizes require `concatenate=True` and a `size`. "
                f"Received: query_dim={query_dim}, memory_dim={memory_dim}."
            )
        self.embeddings = self.add_weight(
            name="embeddings", shape=(self.max_length, self.size or query_dim), initializer=self.initializer
        )

    def encodings(self, positions, size):
        return take(self.embeddings, ops.clip(positions, 0, self.max_length - 1))

    def encode(self, inputs, start_index=0):
        first = start_index if isinstance(start_index, int) else 0
        length = inputs.shape[1]
        # On PyTorch a length is never known, since Keras traces with arbitrary lengths.
        is_known = isinstance(length, int) and keras.backend.backend() != "torch"
        if is_known and first + length > self.max_length:
            raise ValueError(
                f"`max_length` must be at least {first + length} for these inputs. Received: "
                f"max_length={self.max_length}, start_index={start_index}, inputs.shape={tuple(inputs.shape)}."
            )
        return super().encode(inputs, start_index)


@keras.saving.register_keras_serializable(package="attention_zoo")
class IntegerPositions(AbsolutePositions):
    """Adds or concatenates the position itself: `x_p + p` or `[x_p; p]`; normalised, `p / (max_length − 1)`.

    This is for teaching: courses begin with it to show why sinusoids are better. Raw numbers grow with the text and
    soon outweigh the features; normalised numbers are between 0 and 1, but a larger `max_length` brings neighbours
    closer together. In a decoder, `max_length` cannot be the length of the text, which is unknown before the last step.

    Args:
        max_length: Number of positions with different values, a positive integer: later positions have the value
            of the last one, 1, and negative positions that of the first one, 0. Default: `None`, for raw numbers.
        concatenate: Whether the number is concatenated with the features instead of added to each of them.
        size: How many times it is concatenated, a positive integer. Default: the number of features.

    Call arguments:
        inputs: [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of all rows instead, integers [T] or [B, T], such as those of packed texts.

    Returns:
        [B, T, D]; concatenated [B, T, D + size].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import IntegerPositions
        >>> inputs = np.array([[[5.0], [5.0], [5.0]]], "float32")
        >>> print(np.array(IntegerPositions()(inputs))[0, :, 0])
        [5. 6. 7.]
        >>> print(np.array(IntegerPositions(max_length=5, concatenate=True, size=1)(inputs))[0])
        [[5.   0.  ]
         [5.   0.25]
         [5.   0.5 ]]

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1, which encodes absolute
        positions by learned vectors, https://arxiv.org/abs/1705.03122
    """

    saved_options = ("max_length",)

    def __init__(self, max_length=None, concatenate=False, size=None, **kwargs):
        super().__init__(concatenate=concatenate, size=size, **kwargs)
        self.max_length = check_size("max_length", max_length, optional=True)

    def encodings(self, positions, size):
        numbers = ops.cast(positions, "float32")
        if self.max_length is not None:
            numbers = ops.clip(numbers / max(1, self.max_length - 1), 0.0, 1.0)
        return ops.broadcast_to(numbers[:, None], (ops.shape(positions)[0], size))
