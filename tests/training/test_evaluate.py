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
from training.evaluation import evaluate
from training.tasks import get_task
from training.tasks.metrics import translation_metrics
from zoo.errors import InputError
from zoo.presets import checksums
from zoo.workdir import CHECKSUMS


@pytest.fixture(scope="module")
def workdir(text_workdir, tmp_path_factory):
    """A copy that may be written into."""
    target = tmp_path_factory.mktemp("evaluated") / "run"
    return shutil.copytree(text_workdir, target, ignore=shutil.ignore_patterns("tb", "checkpoints"))


def test_command_prints_one_object_and_writes_it_with_the_hypotheses(workdir, text_spec, text_run, capsys):
    assert run_quietly(main, workdir, "--data", text_spec, "--split", "test", "--beam_size", "2") == 0
    output = capsys.readouterr()
    metrics = json.loads(output.out)
    assert output.out.count("\n") == 1
    assert json.loads((workdir / "evaluation" / "test_beam_2.json").read_text()) == metrics
    hypotheses = (workdir / "evaluation" / "test_beam_2.txt").read_text(encoding="utf-8").split("\n")[:-1]
    pairs = load_data(text_spec).split("test")
    assert hypotheses == text_run.translate(pairs.source, beam_size=2)
    computed = translation_metrics(hypotheses, pairs.target)
    assert {name: metrics[name] for name in computed} == computed
    rest = {name: value for name, value in metrics.items() if name not in computed}
    assert rest.keys() == {
        "data",
        "split",
        "weights",
        "examples",
        "beam_size",
        "length_penalty",
        "cross_entropy",
        "perplexity",
        "decoding_seconds",
    }
    assert (rest["split"], rest["examples"], rest["beam_size"], rest["length_penalty"]) == ("test", 20, 2, 0.6)
    assert (rest["data"], rest["weights"]) == (text_spec, "float32")


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


def test_perplexity_is_that_of_training(workdir):
    """The data SPEC is that of training unless told otherwise."""
    metrics = evaluate(workdir, split="val")
    *rounds, _ = (workdir / "metrics.jsonl").read_text().splitlines()
    best = min(json.loads(line)["val_cross_entropy"] for line in rounds)
    card = (workdir / "MODEL_CARD.md").read_text(encoding="utf-8")
    stated = float(re.search(r"cross-entropy: ([\d.]+) nats", card)[1])
    assert math.log(metrics["perplexity"]) == pytest.approx(stated, abs=1e-4)
    assert stated < best + 1e-4, "the mean of checkpoints is taken only where it is no worse"
    assert metrics["examples"] == 20
    assert (workdir / "evaluation" / "val_beam_1.json").is_file()


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


def test_unknown_kind_of_weights(workdir, capsys):
    assert run_quietly(main, workdir, "--weights", "int4") == 2
    assert "`weights` must be one of float32, bfloat16, int8. Received: 'int4'." in capsys.readouterr().err


def test_where_nothing_may_be_written(workdir, text_spec, monkeypatch, capsys):
    files = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    monkeypatch.setattr("training.evaluation.os.access", lambda path, mode: False)
    assert run_quietly(main, workdir, "--data", text_spec, "--split", "val") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["examples"] == 20
    assert printed.err == f"{workdir} cannot be written to: the metrics are printed alone\n"
    assert files == {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}


def test_unknown_split(workdir):
    with pytest.raises(InputError, match="Unknown split 'dev'"):
        evaluate(workdir, split="dev")


def test_labels_that_the_model_lacks(labelled_workdir, tmp_path, capsys):
    spec = write_labelled(tmp_path / "data")
    for split in ("train", "test"):
        path = tmp_path / "data" / f"{split}.tsv"
        path.write_text(path.read_text().replace("\tanimal\n", "\tanimals\n", 2))
    assert run_quietly(main, labelled_workdir, "--data", spec) == 2
    message = f"error: {spec}, test: Unknown label 'animals'. Did you mean animal? The model lacks it.\n"
    assert capsys.readouterr().err == message


def test_labels_that_a_resumed_run_lacks(tmp_path):
    """A run ends in one line where its data have gained a label."""
    data = load_data(write_labelled(tmp_path / "data"))
    settings = DataConfig(spec=data.spec, classes=["human", "thing"])
    with pytest.raises(InputError, match="train: Unknown label 'animal'."):
        get_task("classifier").batches(settings, data, "train", {}, batch_tokens=9)


def test_a_preset(tmp_path, labelled_workdir, labelled_spec, monkeypatch, capsys):
    """Its metrics are printed; what is installed stays as it is."""
    shutil.copytree(labelled_workdir, tmp_path / "small", ignore=shutil.ignore_patterns("tb", "checkpoints"))
    (tmp_path / "small" / CHECKSUMS).write_text(json.dumps(checksums(tmp_path / "small")))
    monkeypatch.setattr("zoo.presets.FOLDER", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run_quietly(main, "preset:small", "--data", labelled_spec, "--weights", "bfloat16") == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.5
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run_quietly(main, "preset:smal") == 2
    assert "error: Unknown preset 'smal'. Did you mean small?" in capsys.readouterr().err
