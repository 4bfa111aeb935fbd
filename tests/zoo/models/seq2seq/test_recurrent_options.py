"""The options of the recurrent sequence-to-sequence models: sizes, and tied embeddings."""

import numpy as np
from support.models import numpy
from support.seq2seq_models import SMALL, TARGET_TOKENS, batch, create, logits, without_weights

LUONG = SMALL["luong_dot"][0]
ENCDEC = SMALL["rnn_encdec"][0]
RNN = SMALL["rnnsearch"][0]


def test_sizes_of_the_papers():
    for name, options, sizes, count in (
        # Embeddings 240,000 · 1,000; eight LSTMs of 4 · 1,000 · 2,001; output 80,000 · 1,001. Sutskever et al. state
        # "384M parameters", of which 64M are recurrent connections.
        (
            "rnn_encdec",
            {
                "embedding_dim": 1000,
                "units": 1000,
                "num_layers": 4,
                "readout_units": 0,
                "cell_type": "lstm",
                "feed_summary": False,
                "reverse_source": True,
            },
            (160_000, 80_000),
            384_112_000,
        ),
        # Bahdanau et al. state sizes only. Embeddings 37,200,000; encoder 9,732,000; s₀ 1,001,000; decoder 10,866,000;
        # alignment 3,002,000; readout 3,621,000; output 15,030,000.
        (
            "rnnsearch",
            {"embedding_dim": 620, "units": 1000, "attention_units": 1000, "readout_units": 500},
            (30_000, 30_000),
            80_452_000,
        ),
        # Luong et al. state sizes only. Embeddings 100,000,000; encoder 32,016,000; decoder 36,016,000; W_a 1,000,000;
        # W_c 2,000,000; output 50,000,000.
        (
            "luong_general",
            {"embedding_dim": 1000, "units": 1000, "num_layers": 4, "tied_embeddings": "none"},
            (50_000, 50_000),
            221_032_000,
        ),
    ):
        model = without_weights(name, source_vocab_size=sizes[0], target_vocab_size=sizes[1], **options)
        assert model.count_params() == count, name


def test_tying_saves_embeddings():
    sizes = {"source_vocab_size": TARGET_TOKENS, "target_vocab_size": TARGET_TOKENS}
    for name, options, saved in (
        # A tied output has no matrix of its own; those of rnnsearch and rnn_encdec have a bias, too.
        ("rnnsearch", {**RNN, "readout_units": 7}, TARGET_TOKENS * 8),
        ("rnn_encdec", {**ENCDEC, "readout_units": 7}, TARGET_TOKENS * 8),
        ("luong_dot", {**LUONG, "units": 7}, TARGET_TOKENS * 7),
    ):
        none, target, both = (
            without_weights(name, **sizes, **{**options, "tied_embeddings": tying}).count_params()
            for tying in ("none", "target", "all")
        )
        assert none - target == saved and target - both == TARGET_TOKENS * 7, name


def test_the_tied_output_is_the_target_embedding():
    model = create("luong_dot", LUONG)
    source, target = batch()
    before = logits(model, source, target)
    matrix = numpy(model.target_embedding.embeddings)
    matrix[10] = 0  # a token that the targets do not have
    assert 10 not in target
    model.target_embedding.embeddings.assign(matrix)
    after = logits(model, source, target)
    assert not np.any(after[..., 10]) and np.any(before[..., 10])
    np.testing.assert_allclose(np.delete(after, 10, axis=-1), np.delete(before, 10, axis=-1), atol=1e-6)


def test_runs_from_before_the_options_load():
    model = create("rnnsearch", RNN)
    config = model.get_config()
    for option in ("cell_type", "start_state", "tied_embeddings"):
        del config[option]
    again = type(model).from_config(config)
    again.build()
    assert again.get_config() == model.get_config()
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(logits(again, *batch()), logits(model, *batch()))


def test_places_behind_the_last_row_are_not_attended_to():
    model = create("luong_location", {**LUONG, "max_length": 3})
    source, target = batch()
    weights = numpy(model.attention(source, target))
    assert weights.shape[-1] == source.shape[1] > 3
    assert weights[..., :3].any() and not weights[..., 3:].any()
