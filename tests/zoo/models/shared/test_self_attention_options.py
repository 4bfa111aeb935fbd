"""What stands in place of self-attention: the layers that the options make."""

import pytest
from support.every import every
from support.seq2seq_models import unbuilt

from zoo import layers

SMALL = {"num_layers": 2, "model_dim": 16, "num_heads": 2, "intermediate_dim": 5}
LAYERS = {  # by the option of both sides, or of the decoder alone
    "full": (layers.MultiHeadAttention, layers.MultiHeadAttention),
    "local": (layers.SlidingWindowAttention, layers.SlidingWindowAttention),
    "block_local": (layers.BlockLocalAttention, layers.BlockLocalAttention),
    "linear": (layers.LinearAttention, layers.LinearAttention),
    "performer": (layers.PerformerAttention, layers.PerformerAttention),
    "talking_heads": (layers.TalkingHeadsAttention, layers.TalkingHeadsAttention),
    "differential": (layers.DifferentialAttention, layers.DifferentialAttention),
    "latent": (layers.MultiHeadLatentAttention, layers.MultiHeadLatentAttention),
    "lightweight_conv": (layers.LightweightConvolution, layers.LightweightConvolution),
    "dynamic_conv": (layers.MultiHeadAttention, layers.DynamicConvolution),
    "retention": (layers.MultiHeadAttention, layers.MultiScaleRetention),
    "gated_linear": (layers.MultiHeadAttention, layers.GatedLinearAttention),
    "delta_rule": (layers.MultiHeadAttention, layers.DeltaRuleAttention),
    "average": (layers.MultiHeadAttention, layers.AverageAttention),
    "ssru": (layers.MultiHeadAttention, layers.SSRU),
}


def model(**options):
    """Returns a model whose layers can be looked at, without weights."""
    return unbuilt(**{**SMALL, **options})


def test_layers():
    with every() as failures:
        for kind, (encoder, decoder) in LAYERS.items():
            with failures.of(kind):
                options = {"self_attention" if encoder is decoder else "decoder_self_attention": kind}
                made = model(num_layers=1, **options, **({"positions": "rotary"} if kind == "latent" else {}))
                assert {type(block.attention) for block in made.encoder_blocks} == {encoder}
                assert {type(block.self_attention) for block in made.decoder_blocks} == {decoder}
                assert {type(block.cross_attention) for block in made.decoder_blocks} == {layers.MultiHeadAttention}
                assert ("decoder" in made.attention_kinds) == (decoder is not layers.SSRU)


def test_their_options():
    for kind, name in {"local": "window", "block_local": "block_size", "performer": "num_features"}.items():
        made = model(num_layers=1, self_attention=kind, window=3, num_features=7)
        attention = made.encoder_blocks[0].attention
        assert getattr(attention, name) == (7 if kind == "performer" else 3)
        if kind.endswith("local"):
            compared = {"score": "additive", "attention_dropout": 0.125}
            attention = model(num_layers=1, self_attention=kind, **compared).encoder_blocks[0].attention
            assert attention.dropout == 0.125 and isinstance(attention.score, layers.AdditiveScore)


def test_sizes_of_heads():
    latent = model(self_attention="latent", positions="rotary").encoder_blocks[0].attention
    assert (latent.key_dim, latent.rope_dim, latent.value_dim, latent.latent_dim) == (8 + 4, 4, 8, 4 * 8)
    first, second = (block.attention for block in model(self_attention="differential").encoder_blocks)
    assert (first.key_dim, first.value_dim, first.initial_lambda) == (4, 8, pytest.approx(0.2))
    assert second.initial_lambda == pytest.approx(0.8 - 0.6 * 0.7408182)


def test_widths_of_convolutions():
    made = model(self_attention="dynamic_conv", kernel_widths="3, 5", num_layers=3, decoder_layers=1)
    assert [block.attention.width for block in made.encoder_blocks] == [3, 5, 5]
    assert {block.attention.padding for block in made.encoder_blocks} == {"same"}
    (block,) = made.decoder_blocks
    assert (block.self_attention.width, block.self_attention.padding) == (3, "causal")
