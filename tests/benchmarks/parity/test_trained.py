"""The Marian that other software trains: what is missing is named, and batches have every pair once."""

import itertools

from benchmarks.parity import train_marian, trained
from benchmarks.parity.train_marian import Recipe, _batches


def test_missing_text_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train_marian, "PACKAGES", ("no_such_package",))
    arguments = ["--text", str(tmp_path), "--output", str(tmp_path / "out")]
    assert train_marian.main(arguments) == 2
    assert "no_such_package" in capsys.readouterr().err
    monkeypatch.setattr(train_marian, "PACKAGES", ())
    assert train_marian.main(arguments) == 2
    assert f"Received: {tmp_path}" in capsys.readouterr().err
    assert trained.main(["--checkpoint", str(tmp_path), "--text", str(tmp_path)]) == 2
    assert f"There must be {tmp_path / 'config.json'}, {tmp_path / 'test.en'}" in capsys.readouterr().err
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
