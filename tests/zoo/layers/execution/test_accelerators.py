"""On an accelerator attention is computed in fewer and larger pieces, since each costs some microseconds."""

import keras
import pytest

from zoo import layers
from zoo.layers.core import kernels
from zoo.layers.execution import chunks, tiles

BATCH, HEADS, SIZE = 8, 16, 64


@pytest.fixture(params=[False, True], ids=["processor", "accelerator"])
def accelerated(request, monkeypatch):
    monkeypatch.setattr(kernels, "has_accelerator", lambda: request.param)
    return request.param


def test_pieces_are_larger_on_an_accelerator(accelerated):
    heads = {length: {"shape": (BATCH, HEADS, length, SIZE), "keys": length} for length in (1024, 4096)}
    sides = {length: tiles.tile_sizes(**shapes) for length, shapes in heads.items()}
    assert sides == ({1024: (512, 512), 4096: (512, 512)} if accelerated else dict.fromkeys(sides, (64, 64)))
    additive = layers.MultiHeadAttention(HEADS, SIZE, score="additive")
    inputs = keras.KerasTensor((BATCH, 1024, HEADS * SIZE))
    additive.build(inputs.shape, inputs.shape)
    query = keras.KerasTensor(heads[1024]["shape"])
    assert chunks.chunk_size(additive, query, {"value": query}) == (16 if accelerated else 1)


@pytest.mark.nightly
def test_what_fits_is_computed_at_once(accelerated):
    layer = layers.MultiHeadAttention(HEADS, SIZE, positions=layers.ALiBiPositions())
    shapes = [keras.KerasTensor((BATCH, length, HEADS * SIZE)) for length in (512, 1024, 4096)]
    paths = [layer.explain_execution(inputs, inputs, use_causal_mask=True).path for inputs in shapes]
    assert paths[1] == "dense" if accelerated else paths[1] != "dense"
    assert paths[2] != "dense"


def test_only_jax_has_accelerators_here():
    assert kernels.has_accelerator() is False or keras.backend.backend() == "jax"
