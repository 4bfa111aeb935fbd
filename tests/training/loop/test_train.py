"""Training end to end: the work directory, one real step, seeds, interruption and resumption."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
from support.tiny_runs import TRANSFORMER, run_quietly, train, write_text

import zoo
from training.config.run_config import RunConfig
from training.data import load_data
from training.hardware.choice import choose_hardware
from training.loop.build import compile_model
from training.loop.prepare import complete
from training.loop.resolve import resolve
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


@pytest.mark.parametrize("name", ["text", "dates"])
def test_files_of_a_work_directory(name, request):
    workdir = request.getfixturevalue(f"{name}_workdir")
    files = {str(path.relative_to(workdir)) for path in workdir.rglob("*") if path.is_file()}
    events = {file for file in files if file.startswith("tb/")}
    assert len(events) == 1 and "tb/events.out.tfevents." in events.pop()
    subwords = {"tokenizers/source.model", "tokenizers/target.model"} if name == "text" else set()
    steps = (40, 60) if name == "text" else (30, 60)
    assert {file for file in files if not file.startswith("tb/")} == {
        "config.json",
        "data.json",
        "checksums.json",
        "tokenizers/source.json",
        "tokenizers/target.json",
        "model.keras",
        *(f"checkpoints/step_{step:08d}.npz" for step in steps),
        "metrics.jsonl",
        "MODEL_CARD.md",
        ".lock",
        *subwords,
    }
    mask = os.umask(0)
    os.umask(mask)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in workdir.rglob("*") if path.is_file()}
    assert modes == {0o666 & ~mask}, "files obey the umask"


def test_configuration_is_complete(text_workdir, text_spec):
    config = RunConfig.from_dict(json.loads((text_workdir / "config.json").read_text()))
    run = zoo.load(text_workdir)
    assert config.data.spec == text_spec
    assert (config.data.tokenizer, config.data.shared_vocabulary) == ("subword", True)
    assert config.model["source_vocab_size"] == run.tokenizers.source.vocab_size <= 120
    assert config.model["target_vocab_size"] == run.tokenizers.target.vocab_size
    assert config.training.max_steps == 56
    assert run.model.count_params() == zoo.create_model(config.spec.name, **config.model).count_params()


def test_log(text_workdir, dates_workdir):
    for workdir, steps in ((text_workdir, [20, 40, 60]), (dates_workdir, [30, 60])):
        records = records_of(workdir)
        assert [record["step"] for record in records] == steps, "max_steps is rounded up to whole rounds"
        for record in records:
            assert record.keys() >= {
                "loss",
                "cross_entropy",
                "val_loss",
                "val_cross_entropy",
                "learning_rate",
                "symbols_per_second",
                "seconds",
            }
        assert records[-1]["val_cross_entropy"] < 0.8 * records[0]["val_cross_entropy"], "it learns"


def test_what_is_kept_is_float32(dates_workdir):
    config = json.loads((dates_workdir / "config.json").read_text())
    assert config["training"]["precision"] == "mixed_bfloat16"
    model = zoo.load(dates_workdir).model
    assert {layer.compute_dtype for layer in model._flatten_layers()} == {"float32"}


def test_the_kept_weights_are_the_mean_of_the_last_checkpoints(text_workdir):
    model = zoo.load(text_workdir).model
    best = min(records_of(text_workdir), key=lambda record: record["val_cross_entropy"])
    found = []
    for path in sorted((text_workdir / "checkpoints").iterdir()):
        with np.load(path) as arrays:
            found.append([arrays[name] for name in sorted(arrays.files) if name.startswith("model/")])
    shapes = [tuple(weight.shape) for weight in model.weights]
    found = [[array for array in arrays if array.dtype == np.float32] for arrays in found]
    assert [array.shape for array in found[0]] == shapes
    mean = [np.mean(arrays, axis=0) for arrays in zip(*found, strict=True)]
    candidates = {"mean": mean, best["step"]: found[-1]}
    close = {
        name: all(np.allclose(np.array(w), a, atol=1e-6) for w, a in zip(model.weights, arrays, strict=True))
        for name, arrays in candidates.items()
    }
    assert any(close.values())


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
    assert f"{longer} of 300 pairs of the train split are cut at 20 symbols" in capsys.readouterr().err
    batches = task.batches(config.data, data, "val", tokenizers, batch_tokens=100)
    for side, rows in zip(("source", "target"), batches.sides, strict=True):
        assert tokenizers[side].decode(padded(rows)) == getattr(data.split("val"), side)
    assert capsys.readouterr().err == ""


def padded(rows):
    """Returns all rows in one array."""
    return rows.gather(range(len(rows)), rows.all_lengths().max())


@pytest.mark.parametrize(
    ("model_name", "options"),
    [
        ("rnnsearch", "model.embedding_dim=3 model.units=5 model.attention_units=7 model.readout_units=2"),
        ("transformer_tiny", "model.num_layers=1 model.model_dim=6 model.intermediate_dim=5 model.num_heads=2"),
        ("cnn_classifier", "model.embedding_dim=3 model.num_filters=5"),
        ("lstm_lm", "model.embedding_dim=3 model.units=3 model.num_layers=1"),
    ],
)
def test_one_step_changes_every_weight(model_name, options, text_spec, labelled_spec, lines_spec):
    task = get_task(zoo.get_spec(model_name).task)
    spec = {"seq2seq": text_spec, "classifier": labelled_spec, "language_model": lines_spec}[task.name]
    settings = "data.vocab_size=60 data.tokenizer=subword data.max_length=7 model.dropout=0.1 training.weight_decay=0.1"
    config = resolve(model_name, spec, [*settings.split(), *options.split(), "training.precision=float32"])
    data = load_data(spec)
    tokenizers = task.make_tokenizers(task.settle(config.data, data), data)
    config = complete(config, task, data, tokenizers)
    model = compile_model(config, choose_hardware(config.training))
    model.run_eagerly = True
    before = [np.array(variable) for variable in model.trainable_variables]
    inputs, outputs, weights = task.batches(
        config.data, data, "train", tokenizers, batch_tokens=64, static_shapes=False
    )[0]
    logs = model.train_on_batch(inputs, outputs, weights, return_dict=True)
    assert 0 < logs["loss"] < 10
    for variable, old in zip(model.trainable_variables, before, strict=True):
        assert not np.array_equal(np.array(variable), old), variable.path
        assert np.isfinite(np.array(variable)).all()


def test_a_finished_run_is_left_alone(text_workdir, text_spec, capsys):
    before = {path: path.stat().st_mtime for path in text_workdir.rglob("*")}
    assert train("transformer_tiny", text_spec, text_workdir, "--resume") == 0
    output = capsys.readouterr()
    assert "is trained already" in output.err
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
    assert line.startswith(f"error: {text_workdir} holds a run already; add --resume to go on with it, or name another")
    line = refused("rnnsearch", text_spec, "--resume")
    assert line.startswith(f"error: {text_workdir} holds a run of transformer_tiny on {text_spec}. Received: rnnsearch")
    line = refused("transformer_tiny", write_text(tmp_path), "--resume")
    assert "holds a run of transformer_tiny" in line and str(tmp_path) in line


def test_resume_needs_a_run(text_spec, tmp_path, capsys):
    """A mistyped name would otherwise begin another one."""
    assert train("transformer_tiny", text_spec, tmp_path / "new", "--resume") == 2
    assert run_quietly(main, "--workdir", tmp_path / "new", "--resume") == 2
    line = f"error: {tmp_path}/new holds no run to go on with. Leave out --resume to begin one.\n"
    assert capsys.readouterr() == ("", line * 2)
    assert not (tmp_path / "new").exists()


def test_bad_options_do_not_leave_a_run_behind(text_spec, tmp_path):
    """Or the next attempt would need --resume, and then go on with the bad options."""
    bad = [*TRANSFORMER, "model.num_heads=3"]
    assert train("transformer_tiny", text_spec, tmp_path / "run", "--set", *bad) == 2
    assert not (tmp_path / "run" / "config.json").exists()


SMALL = (
    "model.embedding_dim=3 model.num_filters=2 model.filter_widths=2 model.dropout=0.1 training.max_steps=8 "
    "training.eval_every=4 training.batch_tokens=256 training.learning_rate=0.05 training.warmup_steps=2 "
    "training.precision=float32 training.average_checkpoints=1"
).split()


# Without dropout of words and embeddings, so that the last step is the best.
AVERAGED = [
    *SMALL,
    "training.ema=0.9",
    "training.accumulate_steps=2",
    "model.word_dropout=0",
    "model.embedding_dropout=0",
]


@pytest.fixture(scope="module")
def averaged(labelled_spec, tmp_path_factory):
    """The work directory of a run with a moving average and two batches in a step."""
    workdir = tmp_path_factory.mktemp("runs") / "averaged"
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *AVERAGED) == 0
    return workdir


def test_the_moving_average_is_validated_and_kept(averaged):
    with np.load(averaged / "checkpoints" / "step_00000008.npz") as arrays:
        found = {name: arrays[name] for name in arrays.files}
    weights = weights_of(averaged)
    kept = [sum(np.array_equal(weight, array) for array in found.values()) for weight in weights]
    raw = [any(np.array_equal(weight, a) for n, a in found.items() if n.startswith("model/")) for weight in weights]
    assert all(kept) and not any(raw)
    assert final_of(averaged)["cross_entropy"] == pytest.approx(records_of(averaged)[-1]["val_cross_entropy"])


KILLED_AT_STEP_6 = """
import os, signal, sys
from zoo.startup import start_backend

start_backend()
from training.loop.progress import Progress
from training.train import command

on_train_batch_end = Progress.on_train_batch_end

def die(self, *arguments, **logs):
    on_train_batch_end(self, *arguments, **logs)
    if self.step == 6:
        os.kill(os.getpid(), signal.SIGKILL)

Progress.on_train_batch_end = die
command()
"""


@pytest.mark.nightly
def test_killed_and_resumed_is_like_not_interrupted(averaged, labelled_spec, tmp_path, capsys):
    """The same seed gives the same losses in another process, and what follows the last checkpoint is repeated."""
    workdir = tmp_path / "killed"
    arguments = ["--model", "cnn_classifier", "--data", labelled_spec, "--workdir", str(workdir), "--set", *AVERAGED]
    killed = subprocess.run([sys.executable, "-c", KILLED_AT_STEP_6, *arguments], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    lines = [line.split(" ", 2)[2] for line in killed.stderr.splitlines()]  # after date and time
    assert [line.split()[0] for line in lines] == ["cnn_classifier", "with", "step", "step"], "frameworks are silent"
    np.testing.assert_allclose(losses_of(workdir), losses_of(averaged)[:1], rtol=1e-6)
    assert [path.name for path in (workdir / "checkpoints").iterdir()] == ["step_00000004.npz"]
    assert not (workdir / "model.keras").exists()
    with pytest.raises(ValueError, match="its training has not finished"):
        zoo.load(workdir)

    # A line whose checkpoint was not written, and the files of a writer that was killed.
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "lo')
    (workdir / "checkpoints" / ".tmp-99999999-step_00000008.npz").write_bytes(b"half")
    capsys.readouterr()
    assert train("cnn_classifier", labelled_spec, workdir, "--resume") == 0
    output = capsys.readouterr()
    assert not list(workdir.glob("**/.tmp-*"))
    assert "resuming from step_00000004.npz" in output.err
    assert json.loads(output.out)["workdir"] == str(workdir)
    np.testing.assert_allclose(losses_of(workdir), losses_of(averaged), rtol=1e-6)
    for resumed, whole in zip(weights_of(workdir), weights_of(averaged), strict=True):
        np.testing.assert_allclose(resumed, whole, rtol=1e-5, atol=1e-6)


def test_killed_behind_the_last_step(averaged, labelled_spec, tmp_path):
    """Nothing is trained any more; what was missing is written."""
    workdir = shutil.copytree(averaged, tmp_path / "copy")
    for name in ("model.keras", "MODEL_CARD.md"):
        (workdir / name).unlink()
    checkpoints = {path.name: path.stat().st_mtime for path in (workdir / "checkpoints").iterdir()}
    assert train("cnn_classifier", labelled_spec, workdir, "--resume") == 0
    assert losses_of(workdir) == losses_of(averaged)
    assert {path.name: path.stat().st_mtime for path in (workdir / "checkpoints").iterdir()} == checkpoints
    for again, whole in zip(weights_of(workdir), weights_of(averaged), strict=True):
        np.testing.assert_array_equal(again, whole)
    assert (workdir / "MODEL_CARD.md").is_file()


def test_a_finished_run_can_go_on_for_longer(averaged, labelled_spec, tmp_path, capsys):
    workdir = shutil.copytree(averaged, tmp_path / "copy")
    assert train("cnn_classifier", labelled_spec, workdir, "--resume", "--set", "training.max_steps=12") == 0
    assert "the run was begun with, but training.max_steps=12" in capsys.readouterr().err
    assert losses_of(workdir)[:2] == losses_of(averaged)
    assert [step for step, *_ in losses_of(workdir)] == [4, 8, 12]
    assert final_of(workdir)["step"] == 12
    card = (workdir / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "After step 8 it went on with training.max_steps=12; the command has the last settings." in card
    assert train("cnn_classifier", labelled_spec, workdir, "--resume", "--set", "training.ema=0.5") == 2
    assert "with training.ema=0.9, which cannot change any more" in capsys.readouterr().err


@pytest.mark.nightly
def test_multi30k(tmp_path, capsys):
    """A hundred steps on real text: set ZOO_DATA to the folder that holds multi30k/."""
    if "ZOO_DATA" not in os.environ:
        pytest.skip("ZOO_DATA is not set")
    from export.saved_model import export_saved_model
    from export.server.models.saved_model import LoadedModel
    from training.evaluation import evaluate

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
