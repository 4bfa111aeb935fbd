"""Exports with smaller weights, and exports that put requests together."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from tiny import run_quietly

from export import saved_model
from export.saved_model import export_saved_model
from export.server.models import LoadedModel

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "the old man sees a child", "my horse"]


def ask(model, signature, **texts):
    return model.predict(
        signature, {name: np.array([t.encode() for t in rows], object) for name, rows in texts.items()}
    )


def bytes_of(path):
    return sum(file.stat().st_size for file in (path / "variables").glob("*.data-*"))


@pytest.mark.parametrize(("weights", "share", "tolerance"), [("bfloat16", 0.7, 0.1), ("int8", 0.6, 0.3)])
def test_smaller_weights(text_workdir, text_run, text_export, tmp_path, weights, share, tolerance):
    path = export_saved_model(text_workdir, tmp_path, weights=weights)
    assert bytes_of(path) < share * bytes_of(text_export / "1")
    model, whole = LoadedModel(path, 1), LoadedModel(text_export / "1", 1)
    targets = text_run.translate(TEXTS)
    scores = ask(model, "score", source=TEXTS, target=targets)["log_prob"]
    expected = ask(whole, "score", source=TEXTS, target=targets)["log_prob"]
    np.testing.assert_allclose(scores, expected, atol=tolerance * np.abs(expected).max())
    assert not np.array_equal(scores, expected), "the stored weights are the ones that are read"
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    kinds = {reader.get_variable_to_dtype_map()[name] for name in reader.get_variable_to_shape_map()}
    assert tf.as_dtype(weights) in kinds


def test_weights_of_another_kind_are_refused(text_workdir, tmp_path, capsys):
    assert run_quietly(saved_model.main, text_workdir, "--output", tmp_path / "x", "--weights", "int4") == 2
    assert "`weights` must be one of float32, bfloat16, int8. Received: 'int4'." in capsys.readouterr().err


@pytest.fixture(scope="module")
def batching(text_workdir, tmp_path_factory):
    path = export_saved_model(text_workdir, tmp_path_factory.mktemp("batching"), dynamic_batching=True)
    return LoadedModel(path, 1)


def test_requests_that_arrive_together_get_their_own_answers(batching, text_run):
    """Of different lengths and sizes, one empty, one larger than the largest batch."""
    requests = [TEXTS[:1], TEXTS[1:3], [], TEXTS, TEXTS[2:3], TEXTS * 20] * 3
    answers: list = [None] * len(requests)

    def call(index):
        answers[index] = ask(batching, "serving_default", text=requests[index])

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    expected = dict(zip(TEXTS, text_run.nbest(TEXTS, beam_size=1), strict=True))
    for texts, answer in zip(requests, answers, strict=True):
        assert [text.decode() for text in answer["text"]] == [expected[text][0].text for text in texts]
        np.testing.assert_allclose(answer["log_prob"], [expected[text][0].log_prob for text in texts], rtol=1e-3)


def test_signatures_keep_their_shapes(batching, text_export):
    plain = LoadedModel(text_export / "1", 1)
    for name, signature in batching.signatures.items():
        for side in ("inputs", "outputs"):
            for key, info in getattr(plain.signatures[name], side).items():
                assert getattr(signature, side)[key].tensor_shape == info.tensor_shape, (name, key)
