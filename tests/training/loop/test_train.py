"""Training end to end: the work directory, one real step, seeds, interruption and resumption."""

import json
import os
import random
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
from support.tiny_runs import CONVOLUTIONS, TRANSFORMER, run_quietly, train, write_text

import zoo
from training.config.resolve import resolve
from training.config.run_config import RunConfig
from training.data import load_data
from training.tasks import get_task
from training.train import main
from zoo.text import CharTokenizer, SubwordTokenizer
from zoo.vocabulary import END
from zoo.workdir import WorkDir


def weights_of(workdir):
    return [np.array(variable) for variable in zoo.load(workdir).model.weights]


def records_of(workdir):
    """Returns the log line of each round."""
    records = [json.loads(line) for line in WorkDir(workdir).metrics.read_text().splitlines()]
    return [record for record in records if not record.get("final")]


def final_of(workdir):
    """Returns the last line of the log of a finished run."""
    return json.loads(WorkDir(workdir).metrics.read_text().splitlines()[-1])


def losses_of(workdir):
    return [(record["step"], record["loss"], record["val_cross_entropy"]) for record in records_of(workdir)]


def arrays_of(workdir, step):
    """Returns the values of a model's weights in a checkpoint, in their order; states of random generators left out."""
    with np.load(workdir / "checkpoints" / f"step_{step:08d}.npz") as arrays:
        found = [arrays[name] for name in sorted(arrays.files) if name.startswith("model/")]
    return [array for array in found if array.dtype == np.float32]


@pytest.mark.parametrize("name", ["text", "dates", "labelled", "lines"])
def test_a_work_directory(name, request):
    workdir = request.getfixturevalue(f"{name}_workdir")
    run, records, final = zoo.load(workdir), records_of(workdir), final_of(workdir)
    config = RunConfig.from_dict(json.loads((workdir / "config.json").read_text()))
    settings = config.training

    rounds = -(-settings.max_steps // settings.eval_every)
    assert [record["step"] for record in records] == [settings.eval_every * (n + 1) for n in range(rounds)]
    of_a_round = "loss cross_entropy val_loss val_cross_entropy learning_rate symbols_per_second seconds"
    assert all(record.keys() >= set(of_a_round.split()) for record in records)
    assert records[-1]["val_cross_entropy"] < 0.8 * records[0]["val_cross_entropy"], "it learns"

    best = min(records, key=lambda record: record["val_cross_entropy"])
    last = [record["step"] for record in records[-settings.average_checkpoints :]]
    tokenizers = {f"tokenizers/{side}.json" for side in run.tokenizer_files()}
    tokenizers |= {
        name.replace("json", "model") for name in tokenizers if config.data.tokenizer in ("subword", "words")
    }
    files = {str(path.relative_to(workdir)) for path in workdir.rglob("*") if path.is_file()}
    (events,) = (file for file in files if file.startswith("tb/"))
    assert "events.out.tfevents." in events
    assert files - {events} - tokenizers == {
        *"config.json data.json checksums.json model.keras metrics.jsonl MODEL_CARD.md .lock".split(),
        *(f"checkpoints/step_{step:08d}.npz" for step in {*last, best["step"]}),
    }
    assert tokenizers <= files
    mask = os.umask(0)
    os.umask(mask)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in workdir.rglob("*") if path.is_file()}
    assert modes == {0o666 & ~mask}, "files obey the umask"

    sizes = {side: tokenizer.vocab_size for side, tokenizer in run.tokenizer_files().items()}
    assert {key: value for key, value in config.model.items() if key.endswith("vocab_size")} == {
        ("vocab_size" if side == "text" else f"{side}_vocab_size"): size for side, size in sizes.items()
    }
    assert {layer.compute_dtype for layer in run.model._flatten_layers()} == {"float32"}

    weights = run.model.get_weights()
    mean = [np.mean(arrays, axis=0) for arrays in zip(*(arrays_of(workdir, step) for step in last), strict=True)]
    kept = [all(map(np.allclose, weights, each)) for each in (mean, arrays_of(workdir, best["step"]))]
    assert any(kept) and final["cross_entropy"] < best["val_cross_entropy"] + 1e-4
    random.seed(settings.seed)
    begun = zoo.create_model(config.spec.name, dtype=settings.precision, **config.model)
    for variable, before, after in zip(begun.weights, begun.get_weights(), weights, strict=True):
        assert np.isfinite(after).all() and not np.array_equal(before, after), f"{variable.path} was not trained"


def test_tokenizers_suit_the_data(text_workdir, dates_workdir, text_spec):
    shared = zoo.load(text_workdir).tokenizers
    assert isinstance(shared.source, SubwordTokenizer)
    assert shared.source.piece_table() == shared.target.piece_table()
    separate = zoo.load(dates_workdir).tokenizers
    assert isinstance(separate.source, CharTokenizer)
    assert set(separate.target.characters) == set("0123456789-")
    settings = ["data.tokenizer=chars", "data.shared_vocabulary=false", "data.vocab_size=10"]
    task = get_task("seq2seq")
    made = task.make_tokenizers(resolve("rnnsearch", text_spec, settings).data, load_data(text_spec))
    assert isinstance(made["source"], CharTokenizer)
    assert "😀" in made["source"].characters and "ß" in made["target"].characters, "characters are all kept"
    assert made["source"].characters != made["target"].characters


def test_long_sentences_are_cut_and_counted(text_spec, capsys):
    config = resolve("rnnsearch", text_spec, ["data.tokenizer=chars", "data.max_length=20"])
    data, task = load_data(text_spec), get_task("seq2seq")
    tokenizers = task.make_tokenizers(config.data, data)
    batches = task.batches(config.data, data, "train", tokenizers, batch_tokens=100)
    for rows in batches.sides:
        lengths = rows.all_lengths()
        assert lengths.max() == 20
        assert (padded(rows)[np.arange(len(lengths)), lengths - 1] == END).all()
    longer = sum(max(len(s), len(t)) > 19 for s, t in zip(*vars(data.split("train")).values(), strict=True))
    assert f"{longer} of 300 pairs of the train split are truncated to 20 tokens" in capsys.readouterr().err
    batches = task.batches(config.data, data, "val", tokenizers, batch_tokens=100)
    for side, rows in zip(("source", "target"), batches.sides, strict=True):
        assert tokenizers[side].decode(padded(rows)) == getattr(data.split("val"), side)
    assert capsys.readouterr().err == ""


def padded(rows):
    """Returns all rows in one array."""
    return rows.gather(range(len(rows)), rows.all_lengths().max())


def test_a_finished_run_is_left_alone(text_workdir, text_spec, capsys):
    before = {path: path.stat().st_mtime for path in text_workdir.rglob("*")}
    assert train("transformer_tiny", text_spec, text_workdir, "--resume") == 0
    output = capsys.readouterr()
    assert "is already trained" in output.err
    metrics = json.loads(output.out)
    assert metrics == {"workdir": str(text_workdir), **final_of(text_workdir)}, "what was kept, not the last round"
    assert metrics["step"] == 60 and metrics["final"] is True
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["cross_entropy"]))
    assert {path: path.stat().st_mtime for path in text_workdir.rglob("*")} == before


def test_a_run_is_not_overwritten(text_workdir, text_spec, tmp_path, capsys):
    def refused(model, spec, *arguments):
        assert train(model, spec, text_workdir, *arguments) == 2
        return capsys.readouterr().err

    line = refused("transformer_tiny", text_spec)
    assert line.startswith(
        f"error: {text_workdir} already contains a run; add --resume to resume it, or choose another"
    )
    line = refused("rnnsearch", text_spec, "--resume")
    assert line.startswith(
        f"error: {text_workdir} contains a run of transformer_tiny on {text_spec}. Received: rnnsearch"
    )
    line = refused("transformer_tiny", write_text(tmp_path), "--resume")
    assert "contains a run of transformer_tiny" in line and str(tmp_path) in line


def test_what_leaves_nothing_behind(text_spec, tmp_path, capsys):
    """A mistyped name would otherwise begin another run, and after bad options the next attempt would need --resume."""
    new = tmp_path / "new"
    assert train("transformer_tiny", text_spec, new, "--resume") == 2
    assert run_quietly(main, "--workdir", new, "--resume") == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count(f"error: {new} contains no run to resume.") == 2
    assert not new.exists()
    assert train("transformer_tiny", text_spec, new, "--set", *TRANSFORMER, "model.num_heads=3") == 2
    assert not (new / "config.json").exists()


def test_the_moving_average_is_validated_and_kept(small_run):
    best = min(records_of(small_run), key=lambda record: record["val_cross_entropy"])
    first, last, of_best = ({}, {}, {})
    for step, arrays in ((6, first), (9, last), (best["step"], of_best)):
        with np.load(small_run / "checkpoints" / f"step_{step:08d}.npz") as file:
            arrays |= {name: file[name] for name in file.files if name != "state"}
    mean = {name: (first[name] + last[name]) / 2 for name in first}
    for weight in weights_of(small_run):
        equal = [
            {name for name, value in arrays.items() if weight.shape == value.shape and np.allclose(weight, value)}
            for arrays in (mean, of_best, last)
        ]
        assert equal[0] or equal[1]
        assert all(name.startswith("optimizer/") for names in equal for name in names), "the weights are others"
    assert final_of(small_run)["cross_entropy"] < best["val_cross_entropy"] + 1e-6


KILLED_AT_STEP_5 = """
import os, signal, sys
from zoo.runtime.startup import start_backend

start_backend()
from training.loop.progress import Progress
from training.train import command

on_train_batch_end = Progress.on_train_batch_end

def die(self, *arguments, **logs):
    on_train_batch_end(self, *arguments, **logs)
    if self.step == 5:
        os.kill(os.getpid(), signal.SIGKILL)

Progress.on_train_batch_end = die
command()
"""


@pytest.mark.nightly
def test_killed_and_resumed_is_like_not_interrupted(small_run, labelled_spec, tmp_path, capsys):
    """The same seed gives the same losses in another process, and what follows the last checkpoint is repeated."""
    workdir = tmp_path / "killed"
    arguments = ["--model", "cnn_classifier", "--data", labelled_spec, "--workdir", str(workdir)]
    arguments += ["--set", *CONVOLUTIONS]
    command = [sys.executable, "-c", KILLED_AT_STEP_5, *arguments]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}  # as the command has it before it imports TensorFlow
    killed = subprocess.run(command, env=quiet, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    lines = [line.split(" ", 2)[2] for line in killed.stderr.splitlines()]  # after date and time
    assert [line.split()[0] for line in lines] == ["cnn_classifier", "with", "step", "step"], "frameworks are silent"
    np.testing.assert_allclose(losses_of(workdir), losses_of(small_run)[:1], rtol=1e-6)
    assert [path.name for path in (workdir / "checkpoints").iterdir()] == ["step_00000003.npz"]
    assert not (workdir / "model.keras").exists()
    with pytest.raises(ValueError, match="not finished"):
        zoo.load(workdir)

    # A line whose checkpoint was not written, and the files of a writer that was killed.
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    (workdir / "checkpoints" / ".tmp-99999999-step_00000006.npz").write_bytes(b"half")
    capsys.readouterr()
    assert train("cnn_classifier", labelled_spec, workdir, "--resume") == 0
    output = capsys.readouterr()
    assert not list(workdir.glob("**/.tmp-*"))
    assert "resuming from step_00000003.npz" in output.err
    assert json.loads(output.out)["workdir"] == str(workdir)
    np.testing.assert_allclose(losses_of(workdir), losses_of(small_run), rtol=1e-6)
    for resumed, whole in zip(weights_of(workdir), weights_of(small_run), strict=True):
        np.testing.assert_allclose(resumed, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
def test_a_finished_run_can_go_on_for_longer(small_run, labelled_spec, copied, capsys):
    workdir = copied(small_run)
    assert train("cnn_classifier", labelled_spec, workdir, "--resume", "--set", "training.max_steps=12") == 0
    assert "training.max_steps=12" in capsys.readouterr().err
    assert losses_of(workdir)[:3] == losses_of(small_run)
    assert [step for step, *_ in losses_of(workdir)] == [3, 6, 9, 12]
    assert final_of(workdir)["step"] == 12
    card = (workdir / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "After step 9 it was resumed with training.max_steps=12; the command has the last settings." in card
    assert train("cnn_classifier", labelled_spec, workdir, "--resume", "--set", "training.ema=0.5") == 2
    assert "training.ema=0.9" in capsys.readouterr().err


@pytest.mark.nightly
def test_multi30k(tmp_path, capsys):
    """A hundred steps on real text: set ZOO_DATA to the folder that holds multi30k/."""
    if "ZOO_DATA" not in os.environ:
        pytest.skip("ZOO_DATA is not set")
    from export.saved_model import export_saved_model
    from export.server.models.saved_model import LoadedModel
    from training.evaluation.evaluate import evaluate

    spec = f"text:{os.environ['ZOO_DATA']}/multi30k:en-de"
    workdir = tmp_path / "run"
    steps = ["training.max_steps=100", "training.eval_every=50", "training.warmup_steps=100"]
    assert train("transformer_tiny", spec, workdir, "--set", *steps) == 0
    first, last = losses_of(workdir)
    assert last[2] < first[2] < 9
    metrics = evaluate(workdir, split="val")
    assert metrics["examples"] == 1014
    assert metrics["perplexity"] < 500
    texts = load_data(spec).split("test").source[:100]
    served = LoadedModel(export_saved_model(workdir, tmp_path / "exported"), 1)
    answers = served.predict("serving_default", {"text": np.array(texts, object)})["text"]
    assert [answer.decode() for answer in answers] == zoo.load(workdir).translate(texts)
