"""Base of the positions that are added to, or concatenated with, the features."""

from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.kernels import axis_size
from zoo.layers.positions.base import Positions, check_positions, consecutive


class AbsolutePositions(Positions):
    """Base of the absolute positions: `x + p` or, concatenated, `[x; p]`.

    A subclass overrides `encodings`.

    Args:
        concatenate: Whether the encodings are concatenated with the features instead of added.
        size: Size of concatenated encodings, a positive integer. Default: as many as there are features.

    Call arguments:
        inputs: [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of the rows in its place, integers [T] or [B, T], such as those of packed texts.

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
                f"`size` needs `concatenate=True`: added encodings have the size of the inputs. Received: size={size}."
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
