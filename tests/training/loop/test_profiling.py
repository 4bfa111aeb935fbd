"""Profiles: a trace of a few batches, and what is said of it."""

import pytest
from support.tiny_runs import CONVOLUTIONS, train

from training.loop.profiling import Profile


@pytest.mark.nightly
def test_profile(labelled_spec, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("training.loop.profiling.FIRST_BATCH", 1)
    monkeypatch.setattr("training.loop.profiling.NUM_BATCHES", 2)
    assert train("cnn_classifier", labelled_spec, tmp_path / "run", "--profile", "--set", *CONVOLUTIONS) == 0
    assert f"the profile of 2 batches is in {tmp_path}/run/tb" in capsys.readouterr().err
    assert list((tmp_path / "run" / "tb" / "plugins" / "profile").glob("*/*.xplane.pb"))


def test_what_is_said_of_a_profile(capsys, monkeypatch):
    """Profiled are three batches from the second on, or those that there are."""
    monkeypatch.setattr("training.loop.profiling.FIRST_BATCH", 2)
    monkeypatch.setattr("training.loop.profiling.NUM_BATCHES", 3)
    monkeypatch.setattr("training.loop.profiling._tracer", lambda folder: (lambda: None, lambda: None))
    said = {
        2: "no profile: ",
        3: "the profile of 1 batch is in tb",
        4: "of 2 batches is in tb",
        9: "of 3 batches is in tb",
    }
    for batches, expected in said.items():
        profile = Profile("tb")
        for batch in range(batches):
            profile.on_train_batch_begin(batch)
            profile.on_train_batch_end(batch)
        profile.close()
        assert expected in capsys.readouterr().err
