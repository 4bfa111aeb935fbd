"""Evaluation: what is printed, what is written, and that they agree with the model."""

import hashlib
import json
import math
import re
import shutil

import pytest
from support.tiny_runs import run_quietly, write_labelled, write_text

from training.config.options import DataConfig
from training.data import load_data
from training.evaluate import main
from training.evaluation.evaluate import evaluate
from training.tasks import get_task
from training.tasks.metrics import translation_metrics
from zoo.errors import InputError
from zoo.presets import checksums
from zoo.workdir import CHECKSUMS


@pytest.fixture
def workdir(evaluated, copied):
    """A copy that may be written into."""
    return copied(evaluated[0])


def test_command_prints_one_object_and_writes_it_with_the_hypotheses(evaluated, text_spec, text_run):
    """The data SPEC is that of training unless told otherwise, and so is the perplexity."""
    workdir, printed = evaluated
    metrics = json.loads(printed)
    assert printed.count("\n") == 1
    assert json.loads((workdir / "evaluation" / "val_beam_1.json").read_text()) == metrics
    hypotheses = (workdir / "evaluation" / "val_beam_1.txt").read_text(encoding="utf-8").split("\n")[:-1]
    pairs = load_data(text_spec).split("val")
    assert hypotheses == text_run.translate(pairs.source)
    computed = translation_metrics(hypotheses, pairs.target)
    assert {name: metrics[name] for name in computed} == computed
    rest = {name: value for name, value in metrics.items() if name not in computed}
    assert rest.keys() == {
        *"data split weights examples beam_size length_penalty".split(),
        *"cross_entropy perplexity decoding_seconds by_length".split(),
    }
    assert (rest["split"], rest["examples"], rest["beam_size"], rest["length_penalty"]) == ("val", 20, 1, 0.6)
    assert (rest["data"], rest["weights"]) == (text_spec, "float32")
    card = (workdir / "MODEL_CARD.md").read_text(encoding="utf-8")
    stated = float(re.search(r"cross-entropy: ([\d.]+) nats", card)[1])
    assert math.log(metrics["perplexity"]) == pytest.approx(stated, abs=1e-4)


@pytest.mark.nightly
def test_other_data_and_options_have_files_of_their_own(workdir, tmp_path):
    """The card has a line of each, which another evaluation of the same replaces."""
    spec = write_text(tmp_path / "others", seed=3, sizes=(5, 5, 5))
    asked = [{}, {"beam_size": 2, "length_penalty": 1.0}, {"spec": spec}, {}]
    found = [evaluate(workdir, **{"split": "test", **options}) for options in asked]
    number = hashlib.sha256(spec.encode()).hexdigest()[:8]
    for name, metrics in zip(("beam_1", "beam_2_length_penalty_1.0", f"beam_1_{number}"), found[:3], strict=True):
        written = json.loads((workdir / "evaluation" / f"test_{name}.json").read_text())
        for key in ("data", "split", "weights", "beam_size", "length_penalty", "bleu"):
            assert written[key] == metrics[key]
    assert found[2]["data"] == spec != found[0]["data"]
    card = (workdir / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert card.count("## Evaluation\n") == 1 and card.startswith("# transformer_tiny")
    for metrics in found:
        key = "- `test` of `{data}`, beam_size {beam_size}, length_penalty {length_penalty}: ".format(**metrics)
        assert card.count(key) == 1 and f"{key}bleu {metrics['bleu']:.4f}, " in card


@pytest.mark.nightly
def test_the_rules_of_a_search(workdir, text_spec, text_run, capsys):
    """Each has a length penalty of its own; metrics, files and card name both."""
    flags = ["--data", text_spec, "--beam_size", "3", "--rules", "huggingface"]
    assert run_quietly(main, workdir, *flags) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert (metrics["rules"], metrics["length_penalty"]) == ("huggingface", 1.0)
    sources = load_data(text_spec).split("test").source
    expected = text_run.translate(sources, beam_size=3, rules="huggingface", length_penalty=1.0)
    name = "test_beam_3_length_penalty_1.0_rules_huggingface.txt"
    assert (workdir / "evaluation" / name).read_text(encoding="utf-8").split("\n")[:-1] == expected
    assert "rules huggingface, length_penalty 1.0: " in (workdir / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_smaller_weights_are_measured_and_noted(workdir, text_run):
    """The model card says once what they change, with numbers that stand in the files."""
    for _ in range(2):
        metrics = evaluate(workdir, split="val", weights="int8")
    whole = json.loads((workdir / "evaluation" / "val_beam_1.json").read_text())
    assert metrics["weights"] == "int8" and metrics == json.loads(
        (workdir / "evaluation" / "val_beam_1_int8.json").read_text()
    )
    assert metrics["cross_entropy"] != whole["cross_entropy"] == pytest.approx(metrics["cross_entropy"], rel=0.1)
    card = (workdir / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert card.count("## With smaller weights") == card.count("- int8, `val`") == 1
    assert f"bleu {whole['bleu']:.4f} → {metrics['bleu']:.4f} ({metrics['bleu'] - whole['bleu']:+.4f})" in card
    assert card.startswith("# transformer_tiny")


def test_bad_requests(labelled_workdir, tmp_path, capsys, subtests):
    spec = write_labelled(tmp_path / "data")
    for split in ("train", "test"):
        path = tmp_path / "data" / f"{split}.tsv"
        path.write_text(path.read_text().replace("\tanimal\n", "\tanimals\n", 2))
    for arguments, message in (
        (["--weights", "int4"], "float32, bfloat16, int8. Received: 'int4'."),
        (["--data", spec], f"error: {spec}, test: Unknown label 'animals'. Did you mean animal?"),
    ):
        with subtests.test(message):
            assert run_quietly(main, labelled_workdir, *arguments) == 2
            assert message in capsys.readouterr().err
    with pytest.raises(InputError, match="Unknown split 'dev'"):
        evaluate(labelled_workdir, split="dev")


def test_labels_that_a_resumed_run_lacks(tmp_path):
    """A run ends in one line where its data have gained a label."""
    data = load_data(write_labelled(tmp_path / "data"))
    settings = DataConfig(spec=data.spec, classes=["human", "thing"])
    with pytest.raises(InputError, match="train: Unknown label 'animal'."):
        get_task("classifier").batches(settings, data, "train", {}, batch_tokens=9)


@pytest.mark.nightly
def test_where_nothing_may_be_written(tmp_path, labelled_workdir, labelled_spec, monkeypatch, capsys):
    """The metrics are printed; a preset, or what cannot be written to, stays as it is."""
    shutil.copytree(labelled_workdir, tmp_path / "small", ignore=shutil.ignore_patterns("tb", "checkpoints"))
    (tmp_path / "small" / CHECKSUMS).write_text(json.dumps(checksums(tmp_path / "small")))
    monkeypatch.setattr("zoo.presets.FOLDER", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run_quietly(main, "preset:small", "--data", labelled_spec, "--weights", "bfloat16") == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.5
    monkeypatch.setattr("training.evaluation.evaluate.os.access", lambda path, mode: False)
    assert run_quietly(main, tmp_path / "small", "--split", "val") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["examples"] == 20
    assert printed.err.startswith(f"{tmp_path / 'small'} ") and printed.err.count("\n") == 1
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run_quietly(main, "preset:smal") == 2
    assert "'smal'. Did you mean small?" in capsys.readouterr().err
