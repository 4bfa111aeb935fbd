"""What positions see in Transformers: the rules that the options make, and their caches."""

import keras
import numpy as np
import pytest
from keras import ops
from support.every import every
from support.models import create, numpy
from support.seq2seq_models import unbuilt
from support.tiers import nightly_unless

from zoo import layers
from zoo.models.catalog.transformers import EncoderDecoderOptions
from zoo.models.shared.attention_options import VISIBILITIES
from zoo.models.shared.transformer_layers import TransformerLayers

SIZES = {"source_vocab_size": 13, "target_vocab_size": 13}
TINY = {"model_dim": 16, "num_heads": 2, "intermediate_dim": 5, "num_layers": 1}
RULES = {
    "full": ({}, None, None),
    "window": ({"window": 3}, layers.SlidingWindow(3), layers.SlidingWindow(3, 0)),
    "dilated": ({"window": 2, "dilation": 3}, layers.Dilated(2, 3), layers.Dilated(2, 3)),
    "global": (
        {"window": 2, "global_tokens": 4},
        layers.SlidingWindow(2) | layers.GlobalTokens(range(4)),
        layers.SlidingWindow(2, 0) | layers.GlobalTokens(range(4)),
    ),
    "block_sparse": (
        {"block_size": 3, "summary_tokens": 2},
        layers.LocalBlocks(3) | layers.SummaryTokens(3, 2),
        layers.LocalBlocks(3) | layers.SummaryTokens(3, 2),
    ),
    "top_blocks": ({"block_size": 3, "num_blocks": 2}, layers.TopBlocks(3, 2), layers.TopBlocks(3, 2)),
}
ROOM = {"window": 3, "dilated": 6, "global": 6}  # positions that a cache keeps


def language_model(**options):
    return create("causal_lm_modern", vocab_size=13, max_length=64, **{**TINY, "num_key_value_heads": 1, **options})


def test_every_visibility_is_here():
    assert tuple(RULES) == VISIBILITIES


def test_rules():
    with every() as failures:
        for visibility, (sizes, within, before) in RULES.items():
            with failures.of(visibility):
                options = EncoderDecoderOptions(**{**SIZES, **TINY}, visibility=visibility, **sizes)
                make = TransformerLayers(options, "float32", 64)
                assert make.encoder_blocks()[0].attention.visibility == within
                assert make.encoder_blocks(causal=True)[0].attention.visibility == before
                (decoder_block,) = make.decoder_blocks()
                assert decoder_block.self_attention.visibility == before
                assert decoder_block.cross_attention.visibility is None


def test_a_decoder_sees_what_is_asked_for():
    made = unbuilt(**TINY, visibility="global", decoder_visibility="full")
    assert made.encoder_blocks[0].attention.visibility == layers.SlidingWindow(8) | layers.GlobalTokens([0])
    assert made.decoder_blocks[0].self_attention.visibility is None


@pytest.mark.parametrize("visibility", nightly_unless(lambda visibility: visibility == "global", VISIBILITIES[1:]))
def test_language_models_decode_in_constant_memory(visibility, tmp_path):
    model, tokens = language_model(visibility=visibility, **RULES[visibility][0]), np.arange(17)[None] * 7 % 11 + 1
    expected = numpy(model({"tokens": tokens}))
    logits, state = model.prefill(ops.convert_to_tensor(tokens[:, :5]), model.initial_state(1, 40))
    for position in range(5, 17):
        np.testing.assert_allclose(numpy(logits), expected[:, position - 1], atol=2e-5)
        logits, state = model.decode_step(ops.convert_to_tensor(tokens[:, position]), state)
    assert {cache["key"].shape[-2] for cache in state["caches"]} == {ROOM.get(visibility, 40)}
    full = language_model()
    full.set_weights(model.get_weights())
    assert np.abs(numpy(full({"tokens": tokens})) - expected)[:, -1].max() > 1e-4  # something is hidden
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded({"tokens": tokens})), expected)


def test_which_rows_rewind_by_different_counts():
    """Those where visibility depends on distances alone, and all positions are kept."""
    kinds = {"window", "dilated", "full", "local"}
    with every() as failures:
        for kind in (*VISIBILITIES, "local", "block_local", "retention"):
            with failures.of(kind):
                name = "visibility" if kind in VISIBILITIES else "self_attention"
                extra = {"positions": "none"} if kind == "retention" else {}
                model = language_model(**{name: kind, "num_key_value_heads": 0, **extra, **RULES.get(kind, [{}])[0]})
                assert model.rewinds_by_row == (kind in kinds)
                assert model.can_rewind == (kind != "retention")


def test_variants_see_what_is_asked_for():
    for kind in ("talking_heads", "differential", "latent"):
        options = {"self_attention": kind, "positions": "rotary", "visibility": "window", "window": 3}
        make = TransformerLayers(EncoderDecoderOptions(**{**SIZES, **TINY}, **options), "float32", 64)
        attention = make.encoder_blocks()[0].attention
        assert attention.visibility == layers.SlidingWindow(3), kind
        inputs = keras.KerasTensor((1, 40, 16))
        assert attention.explain_execution(inputs, inputs).path == "dense", kind
