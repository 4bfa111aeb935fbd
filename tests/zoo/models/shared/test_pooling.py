"""Tokens that pooling leaves out in training."""

import numpy as np
from keras import ops

import zoo
from zoo.models.shared.pooling import TokenDropout

TOKENS = np.array([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]], "int32")


def test_token_dropout_hides_real_tokens_in_training_only():
    mask = np.arange(997) < 883
    layer = TokenDropout(0.3, seed=1)
    np.testing.assert_array_equal(layer(mask[None]), mask[None])
    left = ops.convert_to_numpy(layer(mask[None], training=True))[0]
    assert not left[~mask].any()
    assert 0.6 < left[mask].mean() < 0.8


def test_pooling_dropout_changes_training_alone():
    options = {"vocab_size": 11, "num_classes": 3, "model_dim": 8, "dropout": 0.0, "word_dropout": 0.0}
    model = zoo.create_model("self_attention_classifier", pooling_dropout=0.5, **options)
    answers = ops.convert_to_numpy(model({"tokens": TOKENS}))
    trained = [ops.convert_to_numpy(model({"tokens": TOKENS}, training=True)) for _ in range(5)]
    assert any(np.abs(answers - logits).max() > 1e-3 for logits in trained)
    whole = zoo.create_model("self_attention_classifier", **options)
    whole.set_weights(model.get_weights()[: len(whole.get_weights())])
    np.testing.assert_array_equal(ops.convert_to_numpy(whole({"tokens": TOKENS}, training=False)), answers)
