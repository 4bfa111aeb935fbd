"""What stands in place of self-attention: the layers that the options make, and what is refused."""

import pytest

import zoo
from zoo import layers
from zoo.errors import InputError

SIZES = {"source_vocab_size": 13, "target_vocab_size": 13, "model_dim": 16, "num_heads": 2, "intermediate_dim": 5}


def model(**options):
    return zoo.create_model("transformer_tiny", **{**SIZES, "num_layers": 2, **options})


@pytest.mark.parametrize(
    ("options", "encoder", "decoder"),
    [
        ({"self_attention": "talking_heads"}, layers.TalkingHeadsAttention, layers.TalkingHeadsAttention),
        ({"self_attention": "differential"}, layers.DifferentialAttention, layers.DifferentialAttention),
        (
            {"self_attention": "latent", "positions": "rotary"},
            layers.MultiHeadLatentAttention,
            layers.MultiHeadLatentAttention,
        ),
        ({"self_attention": "lightweight_conv"}, layers.LightweightConvolution, layers.LightweightConvolution),
        ({"decoder_self_attention": "dynamic_conv"}, layers.MultiHeadAttention, layers.DynamicConvolution),
        ({"decoder_self_attention": "retention"}, layers.MultiHeadAttention, layers.MultiScaleRetention),
        ({"decoder_self_attention": "gated_linear"}, layers.MultiHeadAttention, layers.GatedLinearAttention),
        ({"decoder_self_attention": "delta_rule"}, layers.MultiHeadAttention, layers.DeltaRuleAttention),
        ({"decoder_self_attention": "average"}, layers.MultiHeadAttention, layers.AverageAttention),
        ({"decoder_self_attention": "ssru"}, layers.MultiHeadAttention, layers.SSRU),
    ],
)
def test_layers(options, encoder, decoder):
    made = model(**options)
    assert {type(block.attention) for block in made.encoder_blocks} == {encoder}
    assert {type(block.self_attention) for block in made.decoder_blocks} == {decoder}
    assert ("decoder" in made.attention_kinds) == (decoder is not layers.SSRU)


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_widths": "3,0"}, "`kernel_widths` must be positive integers .* Received: kernel_widths='3,0'."),
        ({"kernel_widths": ""}, "`kernel_widths` must be positive integers .* Received: kernel_widths=''."),
        (
            {"self_attention": "dynamic_conv", "num_heads": 3, "key_dim": 4},
            "`num_heads` must divide the size of the activations, 16, with self_attention='dynamic_conv'.",
        ),
        ({"decoder_self_attention": "dynamic_conv", "num_heads": 3, "key_dim": 4}, "with decoder_self_attention='dyn"),
        ({"self_attention": "lightweight_conv", "qk_norm": True}, "`qk_norm` does not go together with"),
        ({"self_attention": "lightweight_conv", "positions": "rotary"}, "`positions` does not .* positions='rotary'."),
        ({"self_attention": "latent"}, "`positions` does not go together with self_attention='latent'"),
        (
            {"self_attention": "latent", "positions": "rotary", "key_dim": 2},
            "`self_attention='latent'` rotates pairs of features: heads need at least four. Received: key_dim=2.",
        ),
        ({"decoder_self_attention": "ssru", "score": "dot"}, "not go together with decoder_self_attention='ssru'"),
        ({"decoder_self_attention": "retention", "output_gate": True}, "`output_gate` does not go together with"),
        ({"decoder_self_attention": "rnn"}, "`decoder_self_attention` must be same, full, .* Received: .*'rnn'."),
    ],
)
def test_errors(options, message):
    with pytest.raises(InputError, match=message):
        model(**options)
