"""Data that change between the start of a run and its resume."""

import json
import re
import shutil
from pathlib import Path

import pytest
from support.tiny_runs import TRANSFORMER, train, write_labelled, write_text

from training.data import Pairs, ParallelData, load_data
from training.data.fingerprint import check_unchanged, save_fingerprint
from zoo.errors import InputError
from zoo.workdir import WorkDir

GO_ON = "Restore them, or go on with what is there now: --set data.changed=accept"


def _pairs(train=("a", "b"), val=("c",), target=str.upper):
    splits = {
        name: Pairs(list(lines), [target(line) for line in lines]) for name, lines in (("train", train), ("val", val))
    }
    return ParallelData(spec="text:x:a-b", tokenizer="chars", shared_vocabulary=True, load_split=splits.get)


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"train": ("a",)}, "train had 2 examples and now has 1."),
        ({"val": ("c", "d")}, "val had 1 example and now has 2."),
        ({"train": ("b", "a")}, "train has as many examples, of which the source and target changed."),
        ({"target": str.lower}, "train has as many examples, of which the target changed; val has as many"),
        ({"train": ("a", "bb"), "val": ()}, "of which the source and target changed; val had 1 example and now has 0."),
    ],
)
def test_what_changed(tmp_path, changed, difference):
    workdir = WorkDir(tmp_path)
    save_fingerprint(workdir, _pairs())
    check_unchanged(workdir, _pairs(), accept=False)
    with pytest.raises(InputError, match=re.escape(f"since the run in {tmp_path} was begun: ")) as refusal:
        check_unchanged(workdir, _pairs(**changed), accept=False)
    assert difference in str(refusal.value) and str(refusal.value).endswith(GO_ON)
    check_unchanged(workdir, _pairs(**changed), accept=True)
    check_unchanged(workdir, _pairs(**changed), accept=False)
    with pytest.raises(InputError, match="changed since the run"):
        check_unchanged(workdir, _pairs(), accept=False)


def test_labels_that_came_and_went(tmp_path):
    spec, workdir = write_labelled(tmp_path / "data", sizes=(60, 5, 5)), WorkDir(tmp_path / "run")
    save_fingerprint(workdir, load_data(spec))
    for split in ("train", "val", "test"):
        path = tmp_path / "data" / f"{split}.tsv"
        path.write_text(path.read_text().replace("\tthing\n", "\tobject\n"))
    difference = "train lost the label 'thing' and gained the label 'object'; val lost the label 'thing' and gained"
    with pytest.raises(InputError, match=difference):
        check_unchanged(workdir, load_data(spec), accept=False)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"train": 1, "val": 2}', '{"train": {"examples": 2}}'])
def test_a_damaged_fingerprint(tmp_path, content):
    workdir = WorkDir(tmp_path)
    workdir.write_text(workdir.data, content)
    with pytest.raises(InputError, match=f"{re.escape(str(workdir.data))} is damaged. If the data are those that"):
        check_unchanged(workdir, _pairs(), accept=False)
    check_unchanged(workdir, _pairs(), accept=True)
    check_unchanged(workdir, _pairs(), accept=False)


def test_a_run_without_fingerprint_gets_one(tmp_path):
    workdir = WorkDir(tmp_path)
    check_unchanged(workdir, _pairs(), accept=False)
    with pytest.raises(InputError, match="train had 2 examples and now has 1"):
        check_unchanged(workdir, _pairs(train=("a",)), accept=False)


def _state(run: Path) -> dict:
    import numpy as np

    with np.load(sorted((run / "checkpoints").glob("*.npz"))[-1]) as arrays:
        return json.loads(str(arrays["state"]))


def test_resuming_with_other_data(tmp_path, capsys):
    spec, run = write_text(tmp_path / "data", sizes=(60, 9, 5)), tmp_path / "run"
    settings = [*TRANSFORMER, "training.max_steps=4", "training.eval_every=2", "training.patience=1"]
    assert train("transformer_tiny", spec, run, "--set", *settings) == 0
    best = _state(run)["best"]
    val = tmp_path / "data" / "val.de"
    val.write_text(val.read_text().replace("Haus", "Hut"))
    capsys.readouterr()
    assert train("transformer_tiny", spec, run, "--resume", "--set", "training.max_steps=6") == 2
    error = capsys.readouterr().err
    assert f"The data {spec} changed since the run in {run} was begun: val has as many examples, of" in error
    assert error.endswith(f"{GO_ON}\n") and "target changed" in error
    longer = ["--resume", "--set", "training.max_steps=6"]
    assert train("transformer_tiny", spec, run, *longer, "data.changed=accept") == 0
    assert "but training.max_steps=6, but data.changed=accept" in capsys.readouterr().err
    # The best round so far was of other data: patience and the choice of weights begin anew.
    assert _state(run)["best_round"] == 3 and _state(run)["best"] != best
    changes = json.loads((run / "config.json").read_text())["changes"]
    assert changes == [{"step": 4, "training.max_steps": 6, "data.changed": "accept"}]
    assert (
        "After step 4 it went on with training.max_steps=6, data.changed=accept" in (run / "MODEL_CARD.md").read_text()
    )
    shutil.rmtree(tmp_path / "data")
    write_text(tmp_path / "data", seed=1, sizes=(60, 9, 5))
    assert train("transformer_tiny", spec, run, "--resume", "--set", "training.max_steps=8") == 2
