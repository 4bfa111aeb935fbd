"""Runs that cannot go on: one message, an exit status, and a work directory that goes on as if nothing had been."""

import errno
import json
import os
import shlex
import signal

import numpy as np
import pytest
import tensorflow as tf
from support.tiny_runs import CONVOLUTIONS, run_quietly, train

import training.loop.checkpoints
import training.loop.progress
from training.config.resolve import TrainingRequest, resolve_run
from training.loop.checkpoint_files import list_checkpoints
from training.loop.failures import RunStopped, explained
from training.loop.feed import ValidationFeed
from training.loop.progress import Progress
from training.train import main
from zoo.errors import InputError
from zoo.models.classifiers.cnn import CNNClassifier
from zoo.runtime.signals import raising_signals
from zoo.workdir import WorkDir


def losses_of(workdir):
    records = [json.loads(line) for line in WorkDir(workdir).metrics.read_text().splitlines()]
    return [(record["step"], record.get("loss"), record.get("val_loss")) for record in records]


def arrays_of(workdir):
    """The variables of the last checkpoint."""
    with np.load(list_checkpoints(WorkDir(workdir).checkpoints)[-1]) as arrays:
        return {name: array for name, array in arrays.items() if name != "state"}


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


EVENTS = {
    interrupt: (130, "interrupted; {}. Resume with: {}"),
    terminate: (143, "terminated; {}. Resume with: {}"),
    exhaust: (1, "error: out of memory; {}. To resume, lower training.batch_tokens, now 512: {}"),
    exhaust_numpy: (1, "error: out of memory; {}. To resume, lower training.batch_tokens, now 512: {}"),
}


def said(event, workdir, step):
    """The beginning of the last line, and the exit status."""
    status, message = EVENTS[event]
    where = f"the last good checkpoint is {workdir}/checkpoints/step_{step:08d}.npz"
    return status, message.format(where, f"python -m training.train --workdir {workdir} --resume")


def happening_at(monkeypatch, step, event):
    """Lets an event happen behind a step, once."""
    on_train_batch_end, reached = Progress.on_train_batch_end, []

    def watch(self, *arguments, **logs):
        on_train_batch_end(self, *arguments, **logs)
        if self.step == step and not reached:
            reached.append(step)
            event()

    monkeypatch.setattr(Progress, "on_train_batch_end", watch)


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_said(event, small_run):
    status, message = said(event, small_run, 9)
    with pytest.raises(RunStopped) as stopped, raising_signals(), explained(WorkDir(small_run)):
        event()
    assert stopped.value.status == status
    assert (f"error: {stopped.value}" if status == 1 else str(stopped.value)).startswith(message)


@pytest.mark.parametrize("event", [interrupt, pytest.param(exhaust, marks=pytest.mark.nightly)])
def test_a_run_that_ends_early_goes_on(event, small_run, labelled_spec, tmp_path, monkeypatch, capsys):
    """Its moving averages and what the unfinished round has counted included, in the rounds that follow as well."""
    workdir = tmp_path / "run"
    status, message = said(event, workdir, 4 if event is interrupt else 3)  # a signal waits for the step's end
    with monkeypatch.context() as patch:
        happening_at(patch, 4, event)
        assert train("cnn_classifier", labelled_spec, workdir, "--set", *CONVOLUTIONS) == status
    output = capsys.readouterr()
    assert output.err.splitlines()[-1].startswith(message)
    assert output.out == "" and "Traceback" not in output.err
    assert not (workdir / "model.keras").exists()
    # Model, data and settings stand in the directory.
    assert run_quietly(main, "--workdir", workdir, "--resume") == 0
    assert losses_of(workdir) == losses_of(small_run)
    np.testing.assert_equal(arrays_of(workdir), arrays_of(small_run))


@pytest.mark.nightly
def test_a_signal_in_validation_ends_the_run_with_its_round(small_run, labelled_spec, tmp_path, monkeypatch, capsys):
    """Also where nobody reads what is written after Ctrl-C."""

    def broken(*arguments, **options):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def interrupt_and_end_what_reads(self):
        interrupt()
        monkeypatch.setattr(training.loop.progress.tqdm, "write", broken)

    workdir = tmp_path / "run"
    monkeypatch.setattr(ValidationFeed, "end", interrupt_and_end_what_reads)
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *CONVOLUTIONS) == 130
    assert f"{workdir}/checkpoints/step_00000003.npz" in capsys.readouterr().err.splitlines()[-1]
    assert losses_of(workdir) == losses_of(small_run)[:1]


@pytest.mark.nightly
def test_a_second_signal_does_not_wait(labelled_spec, tmp_path, monkeypatch, capsys):
    workdir = tmp_path / "run"
    happening_at(monkeypatch, 5, lambda: (interrupt(), terminate()))
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *CONVOLUTIONS) == 130
    assert "step_00000003.npz" in capsys.readouterr().err.splitlines()[-1]


def full(path, **arrays):
    """As NumPy's `savez` where the disk is full."""
    path.write_bytes(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.nightly
def test_an_error_while_a_signal_is_held_is_the_one_that_is_said(labelled_spec, tmp_path, monkeypatch, capsys):
    workdir = tmp_path / "run"
    monkeypatch.setattr(training.loop.checkpoints.np, "savez", full)
    happening_at(monkeypatch, 2, interrupt)
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *CONVOLUTIONS) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: no space left on the disk; there is no checkpoint yet. Resume with: python -m")
    assert list((workdir / "checkpoints").iterdir()) == []


@pytest.mark.nightly
def test_a_full_disk(small_run, labelled_spec, tmp_path, monkeypatch):
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(training.loop.checkpoints.np, "savez", full)
        assert train("cnn_classifier", labelled_spec, workdir, "--set", *CONVOLUTIONS) == 1
    assert train("cnn_classifier", labelled_spec, workdir, "--resume") == 0
    assert losses_of(workdir) == losses_of(small_run)


def test_a_lost_loss(labelled_spec, tmp_path, capsys):
    """It is noticed at its step; nothing of it is kept, and with a lower rate the run can go on."""
    workdir = tmp_path / "run"
    wild = "training.learning_rate=1e30 training.warmup_steps=1 training.clip_norm=0 training.accumulate_steps=1"
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *CONVOLUTIONS, *wild.split()) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(("error: the loss became nan at step 2", "error: the loss became inf at step 2"))
    assert "there is no checkpoint yet" in line and "lower training.learning_rate, now 1e+30: python -m" in line
    assert not (workdir / "metrics.jsonl").exists() and not list((workdir / "checkpoints").glob("*"))
    again = resolve_run(WorkDir(workdir), TrainingRequest(settings=["training.learning_rate=0.01"]), resuming=True)
    assert again.config.training.learning_rate == 0.01


COMPILING = "XLA compilation requires that operator arguments that represent shapes or dimensions be evaluated"


def test_what_xla_cannot_compile(small_run):
    command = f"python -m training.train --workdir {small_run} --resume --set training.jit=off"
    with pytest.raises(InputError, match="cnn_classifier") as caught, explained(WorkDir(small_run)):
        raise tf.errors.InvalidArgumentError(None, None, f"Graph execution error:\n\n{COMPILING}")
    assert str(caught.value).endswith(command)
    with pytest.raises(tf.errors.InvalidArgumentError), explained(WorkDir(small_run)):
        raise tf.errors.InvalidArgumentError(None, None, "indices[0] = 9 is not in [0, 9)")


@pytest.mark.nightly
def test_a_model_that_xla_cannot_compile(labelled_spec, tmp_path, monkeypatch, capsys):
    workdir, encode = tmp_path / "run", CNNClassifier.encode

    def printing(self, *arguments, **options):
        tf.print("XLA has no such operation", output_stream=f"file://{tmp_path}/printed")
        return encode(self, *arguments, **options)

    monkeypatch.setattr(CNNClassifier, "encode", printing)
    assert train("cnn_classifier", labelled_spec, workdir, "--set", *CONVOLUTIONS, "training.jit=on") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: XLA cannot compile cnn_classifier")
    assert error.endswith("--resume --set training.jit=off")
    assert run_quietly(main, "--workdir", workdir, "--resume", "--set", "training.jit=off") == 0


def test_the_command_to_go_on_can_be_pasted(tmp_path):
    workdir = WorkDir(tmp_path / "my run's")
    workdir.write_text(workdir.config, "{}")
    with pytest.raises(RunStopped) as stopped, explained(workdir):
        raise KeyboardInterrupt
    words = shlex.split(str(stopped.value).partition("Resume with: ")[2])
    assert words == [*"python -m training.train --workdir".split(), str(workdir.path), "--resume"]


def test_a_signal_that_comes_out_as_another_error(small_run):
    """As it does of TensorFlow, in whose functions Python's are called."""
    with pytest.raises(RunStopped, match="^interrupted") as stopped, raising_signals(), explained(WorkDir(small_run)):
        try:
            interrupt()
        except KeyboardInterrupt:
            raise tf.errors.UnknownError(None, None, "KeyboardInterrupt: ") from None
    assert stopped.value.status == 130


REASONS = {
    "interrupted; nothing was trained yet": [KeyboardInterrupt()],
    "out of memory": [
        MemoryError(),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes."),
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory."),
    ],
    "no space left on the disk": [
        OSError("No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "tb/plugins: No space left on device"),
    ],
    "the disk quota is used up": [OSError(errno.EDQUOT, "Disk quota exceeded")],
    "a file exceeds the maximum size": [
        OSError(errno.EFBIG, "File too large"),
        RuntimeError("Unable to flush file's cached information (errno = 27, error message = 'File too large')"),
    ],
}


def test_reasons(tmp_path, subtests):
    for reason, errors in REASONS.items():
        for error in errors:
            with subtests.test(f"{reason}: {error!r}"):
                with pytest.raises(RunStopped, match=f"^{reason}") as stopped, explained(WorkDir(tmp_path)):
                    raise error
                assert stopped.value.status == (130 if isinstance(error, KeyboardInterrupt) else 1)


def test_what_is_unforeseen_is_not_explained_away(tmp_path):
    for error in (ValueError("unforeseen"), OSError(errno.EACCES, "Permission denied")):
        with pytest.raises(type(error)) as caught, explained(WorkDir(tmp_path)):
            raise error
        assert caught.value is error
