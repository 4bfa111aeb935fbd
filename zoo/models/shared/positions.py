"""Positions of models: at their embeddings, and ALiBi for encoders."""

import keras
from keras import ops

from zoo import layers
from zoo.layers.core.base import SavesOptions
from zoo.layers.positions.base import angles, distances
from zoo.models.shared.transformer_options import CONCATENATED, INPUT_POSITIONS

FAIRSEQ_START = 2
"""The position of the first token, as fairseq counts: behind that of padding, 1."""


@keras.saving.register_keras_serializable(package="attention_zoo")
class EndlessPositions(layers.LearnedPositions):
    """Learned positions for inputs of any length: all positions after the last row of the table share that row.

    The table of a model may be shorter than a text. A served graph, which knows no lengths, clamps as well; so the
    model does the same everywhere.
    """

    def encode(self, inputs, start_index=0):
        return super(layers.LearnedPositions, self).encode(inputs, start_index)


@keras.saving.register_keras_serializable(package="attention_zoo")
class FairseqPositions(layers.SinusoidalPositions):
    """Sinusoids as fairseq counts them, for M2M-100: all sines come before all cosines, and positions begin at 2.

    `PE[p, i] = sin(r_i (p + 2))` and `PE[p, D/2 + i] = cos(r_i (p + 2))` with `r_i = w^(−i / (D/2 − 1))`.
    """

    def encodings(self, positions, size):
        half = size // 2
        steps = [self.max_wavelength ** (-index / max(half - 1, 1)) for index in range(half)]
        phases = angles(positions + FAIRSEQ_START, ops.convert_to_tensor(steps, dtype="float32"))
        return ops.concatenate([ops.sin(phases), ops.cos(phases)], axis=-1)


@keras.saving.register_keras_serializable(package="attention_zoo")
class InputPositions(SavesOptions):
    """Adds positions to embeddings: `x + p`, or `W [x; p] + b`, or `[x; p]`, or leaves them as they are.

    Args:
        kind: One of `zoo.models.shared.transformer_options.POSITIONS`; those of self-attention change nothing here.
        max_length: Rows of a learned table, see `EndlessPositions`; positions that normalised integers tell apart.
        size: Size of concatenated positions, P; 0 for that of the embeddings.
        project: Whether concatenated positions are followed by a map W back to D.

    Call arguments:
        inputs: Embeddings [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.

    Returns:
        [B, T, D]; without a map [B, T, D + P].
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
    """ALiBi for attention to both sides, with different biases: `−m · |i − j|`, and on one side twice that.

    It is the side after the query in every other head, beginning with the first, and before it in the rest. With equal
    biases on both sides, an encoder maps a reversed text to the same vectors in reversed order, and a decoder whose
    cross-attention has no positions cannot know which of the two it reads. (The paper has decoders alone.)

    Args:
        first_slope: Slope of the first head, with which those of the others change in proportion; 0 for the paper's.
            That of a single head would be 1/256, which no distance in a sentence makes felt.
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
