"""Positions at the embeddings of models, and ALiBi for encoders."""

import keras
from keras import ops

from zoo import layers
from zoo.layers.core.base import SavesOptions
from zoo.layers.positions.base import angles, distances
from zoo.models.shared.position_options import CONCATENATED, INPUT_POSITIONS

FAIRSEQ_START = 2
"""Position of the first token in fairseq, after that of padding, 1."""


@keras.saving.register_keras_serializable(package="attention_zoo")
class EndlessPositions(layers.LearnedPositions):
    """Learned positions for inputs of any length: all positions after the last row of the table use that row.

    A text may be longer than the table of a model. A served graph has dynamic lengths and cannot raise an error, so the
    model never raises one.
    """

    def encode(self, inputs, start_index=0):
        return super(layers.LearnedPositions, self).encode(inputs, start_index)


@keras.saving.register_keras_serializable(package="attention_zoo")
class FairseqPositions(layers.SinusoidalPositions):
    """Sinusoids as in fairseq, for M2M-100: all sines come before all cosines, and positions begin at 2.

    `PE[p, i] = sin(r_i (p + 2))` and `PE[p, D/2 + i] = cos(r_i (p + 2))` with `r_i = w^(−i / (D/2 − 1))`.
    """

    def encodings(self, positions, size):
        half = size // 2
        steps = [self.max_wavelength ** (-index / max(half - 1, 1)) for index in range(half)]
        phases = angles(positions + FAIRSEQ_START, ops.convert_to_tensor(steps, dtype="float32"))
        return ops.concatenate([ops.sin(phases), ops.cos(phases)], axis=-1)


@keras.saving.register_keras_serializable(package="attention_zoo")
class InputPositions(SavesOptions):
    """Adds positions to embeddings: `x + p`, `W [x; p] + b` or `[x; p]`; or returns them unchanged.

    Args:
        kind: One of `zoo.models.shared.position_options.POSITIONS`; with those of self-attention, embeddings are
            unchanged.
        max_length: Rows of a learned table, see `EndlessPositions`; number of different normalised integers.
        size: Size of concatenated positions, P; 0 for that of the embeddings.
        project: Whether W projects concatenated positions to size D.

    Call arguments:
        inputs: Embeddings [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.

    Returns:
        [B, T, D]; without a projection [B, T, D + P].
    """

    saved_options = ("kind", "max_length", "size", "project")

    def __init__(self, kind, max_length, size=0, project=True, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.kind = kind
        self.max_length = max_length
        self.size = size
        self.project = project
        self.positions = self._positions()
        self.output_dense = None

    def _positions(self):
        if self.kind not in (*INPUT_POSITIONS, "learned_t5"):
            return None
        options = {"dtype": self.dtype_policy, "name": "positions"}
        if self.kind in CONCATENATED:
            options |= {"concatenate": True, "size": self.size or None}
        if self.kind == "integer":
            return layers.IntegerPositions(**options)
        if self.kind == "integer_normalized":
            return layers.IntegerPositions(self.max_length, **options)
        if self.kind == "fairseq_sinusoidal":
            return FairseqPositions(**options)
        if self.kind in ("sinusoidal", "concat"):
            return layers.SinusoidalPositions(**options)
        return EndlessPositions(self.max_length, initializer=keras.initializers.RandomNormal(stddev=0.1), **options)

    def build(self, input_shape):
        if self.positions is None:
            return
        self.positions.build(input_shape)
        if self.positions.concatenate and self.project:
            self.output_dense = keras.layers.Dense(input_shape[-1], dtype=self.dtype_policy, name="output")
            self.output_dense.build((*input_shape[:-1], self.positions.encoded_size(input_shape[-1])))

    def call(self, inputs, start_index=0):
        if self.positions is None:
            return inputs
        encoded = self.positions(inputs, start_index=start_index)
        return encoded if self.output_dense is None else self.output_dense(encoded)

    def compute_output_shape(self, input_shape):
        if self.positions is None or self.project:
            return input_shape
        return self.positions.compute_output_shape(input_shape)


@keras.saving.register_keras_serializable(package="attention_zoo")
class TwoSidedALiBiPositions(layers.ALiBiPositions):
    """ALiBi for attention to both sides: a bias of `−m · |i − j|` on one side and of twice that on the other.

    The bias is doubled after the query in heads 0, 2, …, and before it in heads 1, 3, …. With equal biases, an encoder
    would map a reversed text to the same vectors in reversed order, and cross-attention without positions could not
    distinguish the two. (The paper has only decoders.)

    Args:
        first_slope: Slope of the first head, with the others in proportion; 0 for that of the paper, which for a single
            head is only 1/256.
    """

    saved_options = ("first_slope",)

    def __init__(self, first_slope=0.0, **kwargs):
        super().__init__(**kwargs)
        self.first_slope = first_slope

    def create_weights(self, num_heads):
        super().create_weights(num_heads)
        if self.first_slope:
            self.slopes = [slope * self.first_slope / self.slopes[0] for slope in self.slopes]

    def bias(self, query_positions, key_positions):
        after = distances(query_positions, key_positions) > 0  # [T, S]
        even = ops.arange(len(self.slopes)) % 2 == 0
        doubled = ops.equal(after, even[:, None, None])
        bias = super().bias(query_positions, key_positions)
        return ops.where(doubled, 2.0 * bias, bias)
