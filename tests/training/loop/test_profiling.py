"""Profiles: a trace of a few batches, and what is said of it."""

import pytest
from support.tiny_runs import train

from training.loop.profiling import Profile

SETTINGS = (
    "model.embedding_dim=3 model.num_filters=2 model.filter_widths=2 training.max_steps=4 training.eval_every=4 "
    "training.batch_tokens=256 training.precision=float32"
).split()


def test_profile(labelled_spec, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("training.loop.profiling.FIRST_BATCH", 1)
    monkeypatch.setattr("training.loop.profiling.NUM_BATCHES", 2)
    assert train("cnn_classifier", labelled_spec, tmp_path / "run", "--profile", "--set", *SETTINGS) == 0
    assert f"the profile of 2 batches is in {tmp_path}/run/tb" in capsys.readouterr().err
    assert list((tmp_path / "run" / "tb" / "plugins" / "profile").glob("*/*.xplane.pb"))


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        (2, "no profile: it begins after batch 2, and there were 2 batches\n"),
        (3, "the profile of 1 batch is in tb\n"),
        (4, "the profile of 2 batches is in tb\n"),
        (9, "the profile of 3 batches is in tb\n"),
    ],
)
def test_what_is_said_of_a_profile(batches, said, capsys, monkeypatch):
    monkeypatch.setattr("training.loop.profiling.FIRST_BATCH", 2)
    monkeypatch.setattr("training.loop.profiling.NUM_BATCHES", 3)
    monkeypatch.setattr("training.loop.profiling._tracer", lambda folder: (lambda: None, lambda: None))
    profile = Profile("tb")
    for batch in range(batches):
        profile.on_train_batch_begin(batch)
        profile.on_train_batch_end(batch)
    profile.close()
    assert capsys.readouterr().err == said
