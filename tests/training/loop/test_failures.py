"""Runs that cannot go on: one message, an exit status, and a work directory that goes on as if nothing had been."""

import errno
import json
import os
import shlex
import signal

import numpy as np
import pytest
import tensorflow as tf
from support.tiers import nightly_unless
from support.tiny_runs import run_quietly, train

import training.loop.checkpoints
import training.loop.progress
from training.loop.checkpoint_files import list_checkpoints
from training.loop.failures import RunStopped, explained
from training.loop.feed import ValidationFeed
from training.loop.progress import Progress
from training.train import main
from zoo.errors import InputError
from zoo.models.classifiers.cnn import CNNClassifier
from zoo.signals import raising_signals
from zoo.workdir import WorkDir

SMALL = (
    "model.embedding_dim=3 model.num_filters=2 model.filter_widths=2 model.dropout=0.1 training.max_steps=6 "
    "training.eval_every=3 training.batch_tokens=512 training.learning_rate=0.01 training.precision=float32"
).split()


def losses_of(workdir):
    records = [json.loads(line) for line in WorkDir(workdir).metrics.read_text().splitlines()]
    return [(record["step"], record.get("loss"), record.get("val_loss")) for record in records]


def arrays_of(workdir):
    """The variables of the last checkpoint."""
    with np.load(list_checkpoints(WorkDir(workdir).checkpoints)[-1]) as arrays:
        return {name: array for name, array in arrays.items() if name != "state"}


@pytest.fixture(scope="module")
def whole(labelled_spec, tmp_path_factory):
    """The work directory of a run that nothing happened to."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *SMALL) == 0
    return workdir


@pytest.fixture(autouse=True)
def interruptible():
    """A process that was started in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def exhaust():
    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9,9]")


def exhaust_numpy():
    raise np._core._exceptions._ArrayMemoryError((9,), np.dtype("float32"))


GO_ON = "python -m training.train --workdir {} --resume"
EVENTS = {
    interrupt: (130, "interrupted; {}. Go on with: " + GO_ON),
    terminate: (143, "terminated; {}. Go on with: " + GO_ON),
    exhaust: (1, "error: out of memory; {}. To go on, lower training.batch_tokens, now 512: " + GO_ON),
    exhaust_numpy: (1, "error: out of memory; {}. To go on, lower training.batch_tokens, now 512: " + GO_ON),
}


def happening_at(monkeypatch, step, event):
    """Lets an event happen behind a step, once."""
    on_train_batch_end = Progress.on_train_batch_end

    def watch(self, *arguments, **logs):
        on_train_batch_end(self, *arguments, **logs)
        if self.step == step:
            event()

    monkeypatch.setattr(Progress, "on_train_batch_end", watch)


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_said(event, whole):
    status, message = EVENTS[event]
    with pytest.raises(RunStopped) as stopped, raising_signals(), explained(WorkDir(whole)):
        event()
    where = f"the last good checkpoint is {whole}/checkpoints/step_00000006.npz"
    assert stopped.value.status == status
    said = f"error: {stopped.value}" if status == 1 else str(stopped.value)
    assert said.startswith(message.format(where, whole))


# All of them are exceptions at the same place.
@pytest.mark.parametrize("event", nightly_unless(lambda event: event is interrupt, EVENTS))
def test_a_run_that_ends_early_goes_on(event, whole, labelled_spec, tmp_path, monkeypatch, capsys):
    status, message = EVENTS[event]
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        happening_at(patch, 4, event)
        assert train("cnn_classifier", labelled_spec, workdir, "--set", *SMALL) == status
    output = capsys.readouterr()
    step = 4 if event in (interrupt, terminate) else 3  # a signal waits for the step's end
    where = f"the last good checkpoint is {workdir}/checkpoints/step_{step:08d}.npz"
    assert output.err.splitlines()[-1].startswith(message.format(where, workdir))
    assert output.out == "" and "Traceback" not in output.err
    assert not (workdir / "model.keras").exists()
    # Model, data and settings stand in the directory.
    assert run_quietly(main, "--workdir", workdir, "--resume") == 0
    assert losses_of(workdir) == losses_of(whole)
    np.testing.assert_equal(arrays_of(workdir), arrays_of(whole))


def test_a_signal_in_validation_ends_the_run_with_its_round(whole, labelled_spec, tmp_path, monkeypatch, capsys):
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(ValidationFeed, "end", lambda self: interrupt())
        assert train("cnn_classifier", labelled_spec, workdir, "--set", *SMALL) == 130
    assert f"{workdir}/checkpoints/step_00000003.npz" in capsys.readouterr().err.splitlines()[-1]
    assert losses_of(workdir) == losses_of(whole)[:1]
    assert run_quietly(main, "--workdir", workdir, "--resume") == 0
    assert losses_of(workdir) == losses_of(whole)


def test_with_averages_rounds_after_the_resumed_one_are_the_same_as_well(labelled_spec, tmp_path, monkeypatch):
    more = ["training.ema=0.9", "training.max_steps=9"]
    assert train("cnn_classifier", labelled_spec, tmp_path / "whole", "--set", *SMALL, *more) == 0
    with monkeypatch.context() as patch:
        happening_at(patch, 4, interrupt)
        assert train("cnn_classifier", labelled_spec, tmp_path / "run", "--set", *SMALL, *more) == 130
    assert run_quietly(main, "--workdir", tmp_path / "run", "--resume") == 0
    assert losses_of(tmp_path / "run") == losses_of(tmp_path / "whole")
    np.testing.assert_equal(arrays_of(tmp_path / "run"), arrays_of(tmp_path / "whole"))


def test_an_error_while_a_signal_is_held_is_the_one_that_is_said(labelled_spec, tmp_path, monkeypatch, capsys):
    def full(path, **arrays):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(training.loop.checkpoints.np, "savez", full)
    happening_at(monkeypatch, 2, interrupt)
    assert train("cnn_classifier", labelled_spec, tmp_path / "run", "--set", *SMALL) == 1
    assert "no space left on the disk" in capsys.readouterr().err.splitlines()[-1]


def test_nobody_has_to_read_what_is_written_after_ctrl_c(whole, labelled_spec, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def interrupt_and_end_what_reads(self):
        interrupt()
        monkeypatch.setattr(training.loop.progress.tqdm, "write", broken)

    monkeypatch.setattr(ValidationFeed, "end", interrupt_and_end_what_reads)
    assert train("cnn_classifier", labelled_spec, tmp_path / "run", "--set", *SMALL) == 130
    assert losses_of(tmp_path / "run") == losses_of(whole)[:1]


def test_a_second_signal_does_not_wait(labelled_spec, tmp_path, monkeypatch, capsys):
    workdir = tmp_path / "run"
    happening_at(monkeypatch, 5, lambda: (interrupt(), terminate()))
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *SMALL) == 130
    assert "step_00000003.npz" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("resumed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_full_disk(resumed, whole, labelled_spec, tmp_path, monkeypatch, capsys):
    workdir, savez = tmp_path / "run", np.savez

    def full(path, **arrays):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(training.loop.checkpoints.np, "savez", full)
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *SMALL) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: no space left on the disk; there is no checkpoint yet. Go on with: python -m")
    assert list((workdir / "checkpoints").iterdir()) == []
    if resumed:
        monkeypatch.setattr(training.loop.checkpoints.np, "savez", savez)
        assert train("cnn_classifier", labelled_spec, workdir, "--resume") == 0
        assert losses_of(workdir) == losses_of(whole)


def test_a_lost_loss(labelled_spec, tmp_path, capsys):
    """It is noticed at its step; nothing of it is kept, and with a lower rate the run goes on."""
    workdir = tmp_path / "run"
    wild = ["training.learning_rate=1e30", "training.warmup_steps=1", "training.clip_norm=0"]
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *SMALL, *wild) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: the loss became nan at step 2; there is no checkpoint yet. To go on, lower") or (
        line.startswith("error: the loss became inf at step 2; there is no checkpoint yet. To go on, lower")
    )
    assert "lower training.learning_rate, now 1e+30: python -m" in line
    assert not (workdir / "metrics.jsonl").exists()
    assert train("cnn_classifier", labelled_spec, workdir, "--resume", "--set", "training.learning_rate=0.01") == 0
    assert json.loads((workdir / "config.json").read_text())["training"]["learning_rate"] == 0.01
    assert [step for step, *_ in losses_of(workdir)] == [3, 6, 6]


COMPILING = "XLA compilation requires that operator arguments that represent shapes or dimensions be evaluated"


def test_what_xla_cannot_compile(whole):
    command = f"python -m training.train --workdir {whole} --resume --set training.jit=off"
    with pytest.raises(InputError) as caught, explained(WorkDir(whole)):
        raise tf.errors.InvalidArgumentError(None, None, f"Graph execution error:\n\n{COMPILING}")
    message = "XLA cannot compile cnn_classifier with these options for batches of any length. Go on without: "
    assert str(caught.value) == message + command
    with pytest.raises(tf.errors.InvalidArgumentError), explained(WorkDir(whole)):
        raise tf.errors.InvalidArgumentError(None, None, "indices[0] = 9 is not in [0, 9)")


@pytest.mark.nightly
def test_a_model_that_xla_cannot_compile(labelled_spec, tmp_path, monkeypatch, capsys):
    workdir, encode = tmp_path / "run", CNNClassifier.encode

    def printing(self, *arguments, **options):
        tf.print("XLA has no such operation", output_stream=f"file://{tmp_path}/printed")
        return encode(self, *arguments, **options)

    monkeypatch.setattr(CNNClassifier, "encode", printing)
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *SMALL, "training.jit=on") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: XLA cannot compile cnn_classifier")
    assert error.endswith("--resume --set training.jit=off")
    assert run_quietly(main, "--workdir", workdir, "--resume", "--set", "training.jit=off") == 0


def test_the_command_to_go_on_can_be_pasted(tmp_path):
    workdir = WorkDir(tmp_path / "my run's")
    workdir.write_text(workdir.config, "{}")
    with pytest.raises(RunStopped) as stopped, explained(workdir):
        raise KeyboardInterrupt
    words = shlex.split(str(stopped.value).partition("Go on with: ")[2])
    assert words == [*"python -m training.train --workdir".split(), str(workdir.path), "--resume"]


def test_a_signal_that_comes_out_as_another_error(whole):
    """As it does of TensorFlow, in whose functions Python's are called."""
    with pytest.raises(RunStopped, match="^interrupted") as stopped, raising_signals(), explained(WorkDir(whole)):
        try:
            interrupt()
        except KeyboardInterrupt:
            raise tf.errors.UnknownError(None, None, "KeyboardInterrupt: ") from None
    assert stopped.value.status == 130


def test_before_anything_was_trained(tmp_path):
    with pytest.raises(RunStopped, match="^interrupted; nothing was trained yet") as stopped:
        with explained(WorkDir(tmp_path)):
            raise KeyboardInterrupt
    assert stopped.value.status == 130


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes."),
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory."),
    ],
)
def test_memory_of_any_kind(tmp_path, error):
    with pytest.raises(RunStopped, match="^out of memory"):
        with explained(WorkDir(tmp_path)):
            raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "tb/plugins: No space left on device"),
        OSError(errno.EFBIG, "File too large"),
        RuntimeError("Unable to flush file's cached information (errno = 27, error message = 'File too large')"),
    ],
)
def test_a_disk_of_any_kind(tmp_path, error):
    message = "^(no space left on the disk|the disk quota is used up|a file is larger than is allowed here)"
    with pytest.raises(RunStopped, match=message):
        with explained(WorkDir(tmp_path)):
            raise error


@pytest.mark.parametrize("error", [ValueError("unforeseen"), OSError(errno.EACCES, "Permission denied")])
def test_what_is_unforeseen_is_not_explained_away(tmp_path, error):
    with pytest.raises(type(error)) as caught:
        with explained(WorkDir(tmp_path)):
            raise error
    assert caught.value is error
