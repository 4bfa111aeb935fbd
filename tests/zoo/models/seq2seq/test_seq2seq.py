"""Every registered model: its size, its config, its file, and that it decodes as it was trained."""

import keras
import numpy as np
import pytest
from support.models import check_config, check_dropout, check_gradients, fixtures, names_of, numpy
from support.seq2seq_models import (
    SMALL,
    TARGET_SYMBOLS,
    B,
    S,
    T,
    batch,
    create,
    logits,
    steps,
    without_weights,
)
from support.tiers import nightly_unless

import zoo
from zoo.errors import InputError
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.seq2seq.recurrent_base import RecurrentSeq2SeqModel
from zoo.vocabulary import PAD

NAMES = names_of("seq2seq")

# Numbers of weights with the spec's own options, for vocabularies of 101 and 103, and for a shared one of 101.
PINS = {
    # Embeddings 52,224; encoder 789,504; s₀ 65,792; decoder cell 787,968; alignment 197,120; readout 524,800; output
    # 256·V + V.
    "rnnsearch": (2_443_879, 2_442_853),
    # As rnnsearch with one embedding, the output's as well, without bias; the gate 256 + 512 + 256 + 1.
    "pointer_generator": (None, 2_392_065),
    # Embeddings 52,224; encoder 394,752; summary and s₀ 2 · 65,792; decoder 591,360; readout 393,728; output as above.
    "rnn_encdec": (1_590_119, 1_589_093),
    # Embeddings 52,224, the target's for the output as well; encoder 2 · 525,312; decoder cells 787,456 + 525,312;
    # W_c 131,072.
    "luong_dot": (2_546_688, 2_546_176),
    # One matrix of 256² more; two, and a vector; a matrix of 512 · 256.
    "luong_general": (2_612_224, 2_611_712),
    "luong_concat": (2_678_016, 2_677_504),
    "luong_location": (2_677_760, 2_677_248),
    # As general; local-p with a matrix and a vector for the place.
    "luong_local_m": (2_612_224, 2_611_712),
    "luong_local_p": (2_678_016, 2_677_504),
    # Encoder blocks 4 · 132,480; decoder blocks 4 · 198,784; embeddings 204 · 128, shared 101 · 128.
    "transformer_tiny": (1_351_168, 1_337_984),
    # Twelve additive scores of 32·32 + 32, 32·32 and 32.
    "transformer_tiny_additive": (1_376_512, 1_363_328),
    "transformer_tiny_unscaled": (1_351_168, 1_337_984),
    # Twelve temperatures.
    "transformer_tiny_cosine": (1_351_180, 1_337_996),
    # Two tables of 256 · 128.
    "transformer_tiny_learned_positions": (1_416_704, 1_403_520),
    # Two maps of 256·128 + 128.
    "transformer_tiny_concat_positions": (1_416_960, 1_403_776),
    "transformer_tiny_rotary": (1_351_168, 1_337_984),
    "transformer_tiny_alibi": (1_351_168, 1_337_984),
    # 2 · 33 vectors of 32 in eight layers.
    "transformer_tiny_relative": (1_368_064, 1_354_880),
    # In the decoder, eight times two projections of 128·64 + 64 less.
    "transformer_tiny_grouped_query": (1_219_072, 1_205_888),
    "transformer_tiny_local": (1_351_168, 1_337_984),
    "transformer_tiny_linear": (1_351_168, 1_337_984),
    "transformer_tiny_single_head": (1_351_168, 1_337_984),
    # Encoder blocks 4 · 130,368; decoder blocks 4 · 163,328; norms 2 · 128; embeddings as in the tiny one.
    "transformer_modern": (1_201_152, 1_187_968),
    # Encoder blocks 4 · 115,968, decoder blocks 4 · 182,272, on both sides 512 · (3 + 7 + 15 + 31) for the weights;
    # embeddings as in the tiny one.
    "dynamic_conv_nmt": (1_276_416, 1_263_232),
    # Encoder blocks 6 · 132,480, decoder blocks 2 · 165,632; embeddings as in the tiny one.
    "student_tiny": (1_152_256, 1_139_072),
    # Encoder blocks 6 · 2,102,784; decoder blocks 6 · 3,154,432; embeddings 204 · 512, shared 101 · 512.
    "transformer_small": (31_647_744, 31_595_008),
    # Encoder blocks 6 · 3,152,384; decoder blocks 6 · 4,204,032; embeddings as in the small one.
    "transformer_base": (44_242_944, 44_190_208),
    # Encoder blocks as in the base one, decoder blocks 2 · 3,678,208; embeddings as in the small one.
    "student_base": (26_375_168, 26_322_432),
    # Encoder blocks 6 · 12,596,224; decoder blocks 6 · 16,796,672; embeddings 204 · 1,024, shared 101 · 1,024.
    "transformer_big": (176_566_272, 176_460_800),
    # Embeddings 204 · 256, positions 2 · 256 · 256, seven convolutions of 768·512 + 512, seven maps of 256·256 + 256,
    # output 256·V + V.
    "convs2s_small": (3_426_407, 3_425_381),
}

# Both orders of recurrent attention; all embeddings tied; the Transformer with the most options; convolutions.
CHOSEN = {
    ("rnnsearch", 0),
    ("rnnsearch", 3),
    ("luong_local_p", 0),
    ("pointer_generator", 1),
    ("transformer_tiny", 2),
    ("transformer_small", 0),
    ("convs2s_small", 1),
}
# Besides these, all that go another way when they decode step by step.
STEPPING = CHOSEN | {
    ("rnn_encdec", 1),
    ("luong_general", 0),
    ("luong_concat", 1),
    ("transformer_tiny_learned_positions", 0),
    ("transformer_tiny_alibi", 0),
    ("transformer_tiny_relative", 0),
    ("transformer_tiny_grouped_query", 0),
    ("transformer_tiny_local", 0),
    ("transformer_tiny_linear", 0),
    ("transformer_big", 0),
    ("dynamic_conv_nmt", 0),
    ("student_tiny", 0),
    ("student_tiny", 1),
}


def attention_axes(model):
    """Returns how many layers and heads a model's attention has."""
    if isinstance(model, RecurrentSeq2SeqModel):
        return 1, 1
    if model.name == "convs2s_small":
        return model.decoder_layers, 1
    return getattr(model, "decoder_layers", 0) or model.num_layers, model.num_heads


every, chosen = fixtures(SMALL, CHOSEN, create, lambda model: logits(model, *batch()), STEPPING)


def check_pin(name, number):
    source, target = ((101, 103), (101, 101))[number]
    if PINS[name][number] is None:  # it has one vocabulary
        return
    model = without_weights(name, source_vocab_size=source, target_vocab_size=target)
    assert model.count_params() == PINS[name][number]
    assert model.name == name and isinstance(model, Seq2SeqModel)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_pinned_number_of_weights(name):
    assert name in PINS and name in SMALL, f"{name} has no pin or no small options: add them."
    check_pin(name, 0)


# The variants of transformer_tiny share a vocabulary as it does.
@pytest.mark.parametrize("name", nightly_unless(lambda name: "tiny_" not in name, NAMES))
def test_a_shared_vocabulary_takes_fewer_weights(name):
    check_pin(name, 1)


def test_tying_saves_embeddings():
    counts = {}
    for tying in ("none", "target", "all", "auto"):
        options = {**SMALL["transformer_tiny"][0], "tied_embeddings": tying}
        counts[tying] = zoo.create_model("transformer_tiny", source_vocab_size=13, target_vocab_size=13, **options)
    counts = {tying: model.count_params() for tying, model in counts.items()}
    assert counts["none"] - counts["target"] == counts["target"] - counts["all"] == 13 * 6
    assert counts["auto"] == counts["all"]


def test_config_round_trip(every):
    config = check_config(every.model)
    assert every.options.items() <= config.items() and {"source_vocab_size", "target_vocab_size"} <= set(config)


def test_reload_is_equal(model, expected, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    source, target = batch()
    np.testing.assert_array_equal(logits(loaded, source, target), expected)
    if model.attends:
        np.testing.assert_array_equal(numpy(loaded.attention(source, target)), numpy(model.attention(source, target)))


def test_teacher_forcing_equals_step_by_step(every):
    source, target = batch()
    real = target != PAD
    np.testing.assert_allclose(steps(every.model, source, target)[real], every.expected[real], atol=2e-6)


def test_padding_changes_nothing(model, expected):
    source, target = batch()
    real = target != PAD
    wide_source, wide_target = (np.pad(ids, ((0, 0), (0, 3))) for ids in (source, target))
    result, wide_weights = model.decode(wide_target, model.encode(wide_source))
    np.testing.assert_allclose(numpy(result)[:, :T][real], expected[real], atol=2e-6)
    if model.attends:
        weights = numpy(model.attention(source, target))
        np.testing.assert_allclose(numpy(wide_weights)[..., :T, :S], weights, atol=1e-6)
    for row in (1, 2):  # each shorter row as if it were alone
        alone = source[row : row + 1, : np.sum(source[row] != PAD)], target[row : row + 1, : np.sum(real[row])]
        np.testing.assert_allclose(logits(model, *alone)[0], expected[row][real[row]], atol=2e-6)


def test_attention_is_a_distribution_over_the_real_source(model):
    if not model.attends or getattr(model, "alignment", "global") != "global":
        pytest.skip("no attention, or to a window only")
    source, target = batch()
    weights = numpy(model.attention(source, target))
    layers, heads = attention_axes(model)
    assert weights.shape == (B, layers, heads, T, S)
    real = (target != PAD)[:, None, None, :, None] & (source != PAD)[:, None, None, None]
    np.testing.assert_array_equal(weights == 0, np.broadcast_to(~real, weights.shape))
    sums = np.broadcast_to((target != PAD)[:, None, None], weights.shape[:-1])
    np.testing.assert_allclose(weights.sum(axis=-1), sums, atol=1e-6)


def test_logits_do_not_see_the_future(model, expected):
    source, target = batch()
    changed = target.copy()
    changed[0, 4:] = 3 + (changed[0, 4:] - 2) % (TARGET_SYMBOLS - 3)
    before, after = expected[0], logits(model, source, changed)[0]
    np.testing.assert_array_equal(after[:4], before[:4])
    assert np.all(np.any(after[4:] != before[4:], axis=-1))


def test_a_row_of_padding_is_harmless(model, expected):
    # Batches of a fixed height are filled up with such rows.
    source, target = batch()
    source[2] = PAD
    result = logits(model, source, target)
    assert np.all(np.isfinite(result)) and np.all(np.isfinite(steps(model, source, target)))
    np.testing.assert_allclose(result[:2], expected[:2], atol=2e-6)


def test_gradient_reaches_every_weight(model):
    source, target = batch()
    # Out of training, monotonic alignments are hard and have no gradient.
    training = getattr(model, "alignment", None) == "monotonic"
    check_gradients(lambda: model({"source": source, "target": target}, training=training), model)


def test_dropout_acts_in_training_only(model, expected):
    check_dropout(lambda training: logits(model, *batch(), training=training), expected)


# The rnnsearch of `dates_workdir` is trained in bfloat16.
@pytest.mark.parametrize(
    "name", ["rnn_encdec", pytest.param("rnnsearch", marks=pytest.mark.nightly), "luong_dot", "transformer_tiny"]
)
def test_mixed_precision_reaches_every_layer(name):
    row = name, SMALL[name][0]
    model, low = create(*row), create(*row, dtype="mixed_bfloat16")
    assert {layer.dtype_policy.name for layer in low._flatten_layers()} == {"mixed_bfloat16"}
    source, target = batch()
    expected, real = logits(model, source, target), target != PAD
    assert keras.backend.standardize_dtype(low({"source": source, "target": target}).dtype) == "bfloat16"
    np.testing.assert_allclose(logits(low, source, target)[real], expected[real], atol=0.08)
    np.testing.assert_allclose(steps(low, source, target)[real], expected[real], atol=0.08)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rnnsearch", {"units": 0}, "`units` must be a positive integer. Received: units=0."),
        ("rnnsearch", {"dropout": 1.0}, r"`dropout` must be in \[0, 1\). Received: dropout=1.0."),
        ("pointer_generator", {}, "Copying needs one shared vocabulary.* source_vocab_size=13, target_vocab_size=17."),
        ("transformer_tiny", {"num_heads": 0}, "`num_heads` must be a positive integer. Received: num_heads=0."),
        ("transformer_tiny", {"num_layers": 2.0}, "`num_layers` must be a positive integer. Received: num_layers=2.0."),
        (
            "transformer_tiny",
            {"num_heads": 3},
            "`model_dim` must be even and a multiple of `num_heads`. Received: model_dim=128, num_heads=3.",
        ),
        ("transformer_tiny", {"tied_embeddings": "yes"}, "must be auto, all, target or none. Received: .*='yes'."),
        ("transformer_tiny", {"tied_embeddings": "all"}, "needs one shared vocabulary.*source_vocab_size=13, target"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(InputError, match=message):
        zoo.create_model(name, source_vocab_size=13, target_vocab_size=17, **options)


@pytest.mark.parametrize("name", NAMES)
def test_bad_vocabulary(name):
    with pytest.raises(InputError, match="`source_vocab_size` must be a positive integer. Received: .*=None."):
        zoo.create_model(name, source_vocab_size=None, target_vocab_size=17)
