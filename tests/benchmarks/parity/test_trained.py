"""The Marian that other software trains: what is missing is named, and batches have every pair once."""

import itertools

import pytest

from benchmarks.parity import train_marian, trained
from benchmarks.parity.train_marian import Recipe, _batches


def test_missing_text_is_named(tmp_path, capsys, monkeypatch):
    def refused(command, arguments):
        with pytest.raises(SystemExit, match="2"):
            command.main(arguments)
        return capsys.readouterr().err

    monkeypatch.setattr(train_marian, "PACKAGES", ("no_such_package",))
    arguments = ["--text", str(tmp_path), "--output", str(tmp_path / "out")]
    assert "no_such_package" in refused(train_marian, arguments)
    monkeypatch.setattr(train_marian, "PACKAGES", ())
    assert f"Received: {tmp_path}" in refused(train_marian, arguments)
    missing = f"{tmp_path / 'config.json'}, {tmp_path / 'test.en'}"
    assert missing in refused(trained, ["--checkpoint", str(tmp_path), "--text", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_batches_have_every_pair_once_and_no_more_tokens_than_asked_for():
    pairs = [([number] * (1 + number % 7), [number] * (1 + number % 5)) for number in range(200)]
    batches = _batches(pairs, Recipe(batch_tokens=40))
    first, again = (list(itertools.islice(_batches(pairs, Recipe(batch_tokens=40)), 20)) for _ in range(2))
    assert first == again
    epoch: list = []
    while len(epoch) < len(pairs):
        batch = next(batches)
        assert len(batch) * max(len(side) for pair in batch for side in pair) <= 40
        epoch += batch
    assert sorted(epoch) == sorted(pairs)
