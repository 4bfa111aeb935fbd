"""Transformers: their sizes beside the paper's, and that every option does what it says."""

import keras
import numpy as np
import pytest
from keras import ops
from support.models import numpy
from support.seq2seq_models import batch, create, logits, unbuilt, without_weights

import zoo
from zoo import layers
from zoo.layers.scores import SCORES
from zoo.models.shared.position_options import INPUT_POSITIONS, POSITIONS, T5_POSITIONS
from zoo.vocabulary import START

SMALL = {"num_layers": 1, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3, "dropout": 0.25}
SIZES = {"source_vocab_size": 13, "target_vocab_size": 17}
CHANGES = {
    "additive": ("score", "additive"),
    "unscaled": ("score", "dot"),
    "cosine": ("score", "cosine"),
    "learned_positions": ("positions", "learned"),
    "concat_positions": ("positions", "concat"),
    "rotary": ("positions", "rotary"),
    "alibi": ("positions", "alibi"),
    "relative": ("positions", "relative"),
    "grouped_query": ("num_key_value_heads", 2),
    "local": ("self_attention", "local"),
    "linear": ("self_attention", "linear"),
    "single_head": ("num_heads", 1),
}


def made(**options):
    """Returns a model whose layers can be looked at."""
    return zoo.create_model("transformer_tiny", **SIZES, **{**SMALL, **options})


@pytest.mark.parametrize(
    ("name", "weights", "millions", "difference"),
    # Encoder 6 · 3,152,384, decoder 6 · 4,204,032, embeddings 37,000 · 512; big: 12,596,224, 16,796,672 and 1,024.
    [("transformer_base", 63_082_496, 65, -0.0295), ("transformer_big", 214_245_376, 213, 0.0058)],
)
def test_sizes_are_those_of_the_paper(name, weights, millions, difference):
    # Table 3 of Vaswani et al. 2017, with the shared vocabulary of about 37,000 of section 5.1.
    assert without_weights(name, source_vocab_size=37_000, target_vocab_size=37_000).count_params() == weights
    np.testing.assert_allclose(weights / (millions * 1e6) - 1, difference, atol=1e-4)


@pytest.mark.nightly
def test_the_base_model_can_be_made():
    model = zoo.create_model("transformer_base", source_vocab_size=37_000, target_vocab_size=37_000)
    inputs = {"source": np.array([[5, 2]]), "target": np.array([[1]])}
    assert model.count_params() == 63_082_496 and model(inputs).shape == (1, 1, 37_000)


def test_variants_change_one_option():
    tiny, found = zoo.get_spec("transformer_tiny").config, {}
    for name in zoo.list_models("transformer_tiny_*"):
        config = zoo.get_spec(name).config
        (found[name.removeprefix("transformer_tiny_")],) = set(config.items()) - set(tiny.items())
        assert set(config) == set(tiny)
    assert found == CHANGES


def test_every_option_can_be_set():
    config = made().get_config()
    assert set(zoo.get_spec("transformer_tiny").config) | set(SIZES) == set(config) - {"name", "trainable", "dtype"}


def test_every_score_can_be_made():
    for score in SCORES:
        model = unbuilt(**SMALL, score=score)
        found = [
            attention.score
            for block in [*model.encoder_blocks, *model.decoder_blocks]
            for attention in (getattr(block, name, None) for name in ("attention", "self_attention", "cross_attention"))
            if attention is not None
        ]
        assert len({id(one) for one in found}) == 3 and all(isinstance(one, SCORES[score]) for one in found)
    (block,) = unbuilt(**SMALL, score="cosine").encoder_blocks
    assert block.attention.score.learn_temperature and block.attention.score.temperature == 0.1


def test_tying_saves_embeddings():
    sizes, counts = {"source_vocab_size": 13, "target_vocab_size": 13}, {}
    for tying in ("none", "target", "all", "auto"):
        made = without_weights("transformer_tiny", **sizes, **SMALL, tied_embeddings=tying)
        counts[tying] = made.count_params()
    assert counts["none"] - counts["target"] == counts["target"] - counts["all"] == 13 * 6
    assert counts["auto"] == counts["all"]


@pytest.mark.parametrize("kind", POSITIONS)
def test_positions_stand_where_they_belong_and_tell_the_order(kind):
    shared = kind in (*T5_POSITIONS, "relative")
    model = create("transformer_tiny", {**SMALL, "positions": kind, "num_layers": 1 + shared})
    classes = {
        "rotary": layers.RotaryPositions,
        "xpos": layers.RotaryPositions,
        "alibi": layers.ALiBiPositions,
        "relative": layers.ShawRelativePositions,
        **dict.fromkeys(T5_POSITIONS, layers.T5RelativePositions),
    }
    expected = classes.get(kind, type(None))
    inside = [block.attention.positions for block in model.encoder_blocks]
    inside += [block.self_attention.positions for block in model.decoder_blocks]
    assert all(isinstance(positions, expected) for positions in inside)
    assert all(block.cross_attention.positions is None for block in model.decoder_blocks)
    assert (model.source_positions.positions is not None) == (kind in (*INPUT_POSITIONS, "learned_t5"))
    if kind == "xpos":  # only where a mask hides what is after the query
        assert [type(positions) for positions in inside] == [layers.RotaryPositions, layers.XPosPositions]
    if kind in T5_POSITIONS:  # one object in a stack; the decoder looks back only
        assert len({id(positions) for positions in inside}) == 2
        assert [positions.bidirectional for positions in inside] == [True, True, False, False]
        assert {positions.max_distance for positions in inside} == {128}
    if kind == "relative":
        assert len({id(positions) for positions in inside}) == 4
        assert {positions.max_distance for positions in inside} == {16}
    ids = batch()[0][0]
    before, turned = logits(model, np.stack([ids, ids[::-1]]), np.array([[START, 5], [START, 5]]))
    difference = np.abs(before - turned).max()
    assert difference < 1e-5 if kind == "none" else difference > 1e-4


def test_alibi_tells_the_sides_of_an_encoder_apart():
    model = made(positions="alibi", model_dim=8, num_heads=2)
    (encoder,), (decoder,) = model.encoder_blocks, model.decoder_blocks
    # Slopes 1/16 and 1/256; of the first head, later keys count double, of the second, earlier ones.
    bias = 256 * numpy(encoder.attention.positions.bias([1], [0, 1, 2, 3]))[:, 0]
    np.testing.assert_array_equal(bias, [[-16, 0, -32, -64], [-2, 0, -1, -2]])
    bias = 256 * numpy(decoder.self_attention.positions.bias([2], [0, 1, 2]))[:, 0]
    np.testing.assert_array_equal(bias, [[-32, -16, 0], [-2, -1, 0]])


def test_distances_have_a_limit():
    for kind in ("relative", *T5_POSITIONS):
        assert (
            unbuilt(**SMALL, positions=kind, max_distance=19).encoder_blocks[0].attention.positions.max_distance == 19
        )


def test_keys_and_values_are_shared_in_the_decoder_alone():
    model = made(num_key_value_heads=1)
    (encoder,), (decoder,) = model.encoder_blocks, model.decoder_blocks
    assert type(encoder.attention) is layers.MultiHeadAttention
    assert {type(one) for one in (decoder.self_attention, decoder.cross_attention)} == {layers.GroupedQueryAttention}
    memory = model.encode(ops.convert_to_tensor([[5, 2]]))
    assert memory["layers"][0]["key"].shape == (1, 1, 2, 2)
    assert model.initial_state(memory, 5)["caches"][0]["key"].shape == (1, 1, 5, 2)


def test_local_attention_does_not_see_farther_than_its_window():
    model, source = create("transformer_tiny", {**SMALL, "self_attention": "local", "window": 2}), batch()[0]
    changed = source.copy()
    changed[0, 4] = 4 + (source[0, 4] - 3) % 9
    before, after = (
        numpy(model.encode(ops.convert_to_tensor(ids))["layers"][0]["value"])[0] for ids in (source, changed)
    )
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert np.all(np.any(after[:, 2:] != before[:, 2:], axis=-1))


def test_options_reach_the_blocks():
    options = {"attention_dropout": 0.125, "feed_forward_dropout": 0.375, "activation": "gelu", "use_bias": False}
    model = made(gated=True, normalization="rms_norm", normalize_first=True, **options)
    for block in [*model.encoder_blocks, *model.decoder_blocks]:
        attentions = [getattr(block, name) for name in dir(block) if name.endswith("attention")]
        assert attentions and {part.dropout for part in attentions} == {0.125}
        assert type(block.feed_forward) is layers.GatedFeedForward and block.feed_forward.dropout == 0.375
        assert block.feed_forward.activation is keras.activations.gelu
        assert {type(norm) for norm in block.norms} == {keras.layers.RMSNormalization}
        assert not any("bias" in weight.path for weight in block.weights)
    assert type(model.encoder_norm) is type(model.decoder_norm) is keras.layers.RMSNormalization
    assert type(made().decoder_blocks[0].feed_forward) is layers.FeedForward and made().encoder_norm is None


def test_a_low_precision_policy_reaches_every_layer():
    for options in ({"positions": "relative", "score": "additive"}, {"positions": "t5", "gated": True}):
        model = zoo.create_model("transformer_tiny", dtype="mixed_bfloat16", **SIZES, **{**SMALL, **options})
        assert {layer.dtype_policy.name for layer in model._flatten_layers()} == {"mixed_bfloat16"}
