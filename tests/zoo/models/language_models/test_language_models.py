"""Language models: where dropout acts, what tying saves, and how they begin."""

import numpy as np
from keras import ops
from support.model_cases import create
from support.model_properties import check_rewinding
from support.models import numpy
from support.text_models import TOKENS, beginnings

import zoo


def test_dropout_acts_where_it_should(monkeypatch):
    model, tokens = create("causal_lm_tiny"), ops.convert_to_tensor(beginnings())
    embedded = [numpy(model._embed(tokens, training=training)) for training in (False, True)]
    assert 0.1 < np.mean(embedded[1] == 0) < 0.4 and not np.any(embedded[0] == 0)
    model, dropped = create("lstm_lm"), []
    drop = model.dropout_layer.call
    monkeypatch.setattr(
        model.dropout_layer,
        "call",
        lambda inputs, **options: dropped.append(inputs.shape[-1]) or drop(inputs, **options),
    )
    model({"tokens": tokens}, training=True)
    assert dropped == [5, 7, 7, 7]  # embeddings, between three layers, and before the output


def test_rows_of_different_lengths_share_caches():
    tokens = beginnings()[:1]
    for positions in ("rotary", "alibi", "sinusoidal"):
        model = create("causal_lm_tiny", positions=positions)
        assert model.rewinds_by_row
        check_rewinding(
            model.decode_steps, model, model.initial_state(3), tokens[0], numpy(model({"tokens": tokens}))[0]
        )


def test_tying_saves_the_output_matrix():
    for name, saved in (("causal_lm_tiny", TOKENS * 6), ("lstm_lm", TOKENS * 5 + TOKENS)):
        number = 0 if name == "causal_lm_tiny" else 1
        tied, free = (create(name, number, tied_embeddings=tied).count_params() for tied in (True, False))
        assert free - tied == saved, name


def test_a_new_transformer_expects_nothing():
    model = zoo.create_model("causal_lm_tiny", vocab_size=69)
    tokens = np.random.default_rng(0).integers(4, 69, (5, 64)).astype("int32")
    assert np.abs(numpy(model({"tokens": tokens}))).max() < 3.0  # not even the same token once more
    kernels = [part.output_dense.kernel for block in model.blocks for part in (block.attention, block.feed_forward)]
    for kernel in kernels:
        usual = np.sqrt(2 / sum(kernel.shape))  # of glorot_uniform
        np.testing.assert_allclose(np.std(numpy(kernel)), usual / np.sqrt(8), rtol=0.02)
