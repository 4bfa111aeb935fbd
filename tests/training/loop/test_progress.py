"""What a run says of itself, on a terminal and in a log file."""

import contextlib
import fcntl
import math
import os
import pty
import re
import struct
import sys
import termios
import time

import keras
import numpy as np
import pytest

from training.config.resolve import resolve
from training.loop import progress as module
from training.loop.failures import LossLost
from training.loop.progress import Progress, announce, taking_long
from training.loop.trainer import _chosen_settings

CLOCK = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def progress():
    """Returns a function that returns the callback at the beginning of a run of 10 steps."""
    model = keras.Sequential([keras.layers.Dense(1)])
    with contextlib.ExitStack() as stack:

        def begin(done=0, total=10, **options):
            callback = Progress(
                total,
                done,
                **{
                    "batches_per_step": 1,
                    "schedule": lambda batch: 0.25,
                    "tokens_of_batch": dict.fromkeys(range(99), 5),
                    "validation_batches": 40,
                    **options,
                },
            )
            callback.set_model(model)
            callback.on_train_begin()
            stack.callback(callback.close)
            callback.on_epoch_begin(0)
            return callback

        yield begin


def pass_batch(callback, loss=1.5):
    callback.on_train_batch_end(0, {"loss": np.float32(loss)})


def lines_of(capsys):
    """Returns the lines of a log file without their date and time."""
    lines = capsys.readouterr().err.splitlines()
    assert all(re.match(CLOCK, line) for line in lines)
    return [re.sub(f"^{CLOCK} ", "", line) for line in lines]


def test_the_share_of_the_peak_is_shown_where_that_is_known(progress, capsys):
    for at_peak in (None, 40.0):
        callback = progress(tokens_at_peak=at_peak)
        pass_batch(callback)
        callback.tokens, callback.seconds = 34, 2.0
        callback.on_epoch_end(0, {"loss": 1.5, "val_cross_entropy": 1.0})
    _, unknown, _, known = lines_of(capsys)
    assert " 17 tokens/s, learning rate" in unknown
    assert " 17 tokens/s (MFU 42.5%), learning rate" in known


def test_tokens_of_steps_are_counted(progress, capsys):
    tokens = {30: 50, 31: 70, 32: 30, 33: 999}
    callback = progress(30, 4000, schedule=lambda batch: batch / 66, tokens_of_batch=tokens, best=2.5)
    for _ in range(3):
        pass_batch(callback)
    logs = {"loss": 1.5, "val_cross_entropy": math.log(8)}
    callback.on_epoch_end(3, logs)
    callback.on_epoch_end(3, {**logs, "val_cross_entropy": 3.0, "val_accuracy": 0.912345})
    assert tokens == {33: 999}
    assert callback.tokens == 100, "without the first batch, for which the step is compiled"
    assert logs["symbols_per_second"] == pytest.approx(100 / callback.seconds)
    assert logs["learning_rate"] == 0.5, "that of the step to come"
    begin, first, second = lines_of(capsys)
    assert begin == "step 30/4,000: compiling the first step"
    assert first.startswith("step 33/4,000: loss 1.5000, validation 2.0794, best 2.0794, perplexity 8.00, ")
    assert re.search(r" left, [\d,]+ tokens/s, learning rate 5\.00e-01$", first)
    assert "loss 1.5000, validation 3.0000, best 2.0794, accuracy 0.9123, " in second


def test_a_long_round_has_lines_of_its_own_with_the_time_left(progress, capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    callback = progress(done=2)
    for _ in range(4):
        callback.on_train_batch_begin(0)
        clock[0] += 20
        callback.on_train_batch_end(0, {"loss": np.float32(1.5)})
    for batch in range(4):
        clock[0] += 20
        callback.on_test_batch_end(batch)
    # After 40 and 80 seconds, the first batch aside: 20 seconds a step.
    assert lines_of(capsys) == [
        "step 2/10: compiling the first step",
        "step 4/10: loss 1.5000, 02:00 left, learning rate 2.50e-01",
        "step 6/10: loss 1.5000, 01:20 left, 0 tokens/s, learning rate 2.50e-01",
        "step 6/10: validating 2/40",
        "step 6/10: validating 4/40",
    ]


def test_no_pace_is_shown_before_there_is_one(progress, capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    for compiled in (False, True):
        callback = progress(compiled=compiled)
        for _ in range(3):
            pass_batch(callback)
    number = r"[1-9][\d,]* tokens/s, "
    rest = "learning rate 2.50e-01"
    expected = [r"0/10: compiling the first step"]
    expected += [f"1/10: loss 1.5000, {rest}", f"2/10: loss 1.5000, 00:00 left, {rest}"]
    expected += [f"3/10: loss 1.5000, 00:00 left, {number}{rest}", f"1/10: loss nan, 00:00 left, {rest}"]
    expected += [f"{step}/10: loss 1.5000, 00:00 left, {number}{rest}" for step in (2, 3)]
    lines = lines_of(capsys)
    assert len(lines) == len(expected)
    assert all(re.fullmatch(f"step {line}", shown) for line, shown in zip(expected, lines, strict=True))


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard error a terminal of some columns, and returns what is written to it."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    with open(slave, "w", encoding="utf-8") as file, open(master, "rb", buffering=0) as screen:

        def read():
            content = b"".join(iter(lambda: screen.read(4096) or b"", b""))
            return content.decode().replace("\r", "\n").split("\n")

        def make(columns):
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            monkeypatch.setattr(sys, "stderr", file)
            return read

        yield make


def run_on_a_terminal(progress, read, total):
    callback = progress(total - 10, total, tokens_of_batch=dict.fromkeys(range(total), 12_345))
    for _ in range(3):
        pass_batch(callback)
    callback.on_test_batch_end(7)
    callback.on_epoch_end(0, {"loss": 1.5, "val_cross_entropy": 2.0, "val_accuracy": 0.5})
    return [line.rstrip() for line in read()]


def test_eighty_columns_have_a_bar_that_can_be_read(progress, terminal, monkeypatch):
    total = 300_000
    monkeypatch.setattr(module, "SECONDS_BETWEEN_BARS", 0.0)
    lines = run_on_a_terminal(progress, terminal(80), total)
    assert max(map(len, lines)) <= 80
    bars = [re.search(r"\|(.*)\|", line)[1] for line in lines if "%|" in line]
    assert bars and min(map(len, bars)) >= 14
    assert any(re.search(rf"\| {total - 8}/{total}, loss 1\.5000, \d\d:\d\d left", line) for line in lines)
    assert any(f"| {total - 7}/{total}, validating 8/40" in line for line in lines)
    (summary,) = [line for line in lines if "validation" in line]
    assert re.match(r"\d\d:\d\d:\d\d step .*: loss 1\.5000, validation 2\.0000, best 2\.0000$", summary)


def test_a_terminal_without_columns_has_a_bar(progress, terminal, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_BARS", 0.0)
    lines = run_on_a_terminal(progress, terminal(0), 90)
    assert any(re.search(r"%\|.{14,}\| 82/90", line) for line in lines) and max(map(len, lines)) <= 80


def test_a_wide_terminal_has_all(progress, terminal, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_BARS", 0.0)
    text = "\n".join(run_on_a_terminal(progress, terminal(200), 90))
    assert re.search(r"best 2\.0000, accuracy 0\.5000, .* left, [\d,]+ tokens/s, learning rate 2\.50e-01\n", text)


def test_a_lost_loss_is_noticed_at_its_step(progress):
    for loss in (math.nan, math.inf):
        callback = progress(batches_per_step=3)
        for _ in range(4):
            pass_batch(callback)
        pass_batch(callback, loss)
        with pytest.raises(LossLost, match=f"{loss} at step 2"):
            pass_batch(callback)


def test_a_lost_loss_is_noticed_at_the_latest_before_a_validation(progress):
    callback = progress()
    pass_batch(callback)
    pass_batch(callback, math.nan)
    with pytest.raises(LossLost, match="at step 2"):
        callback.on_test_begin()


def test_a_batch_is_not_waited_for_before_the_next_one_was_begun(progress):
    """Its loss is of use as a number only, so that reading it is waiting for it."""
    read = []

    class Loss:
        def __init__(self, number):
            self.number = number

        def __float__(self):
            read.append(self.number)
            return 1.5

    callback = progress()
    for number in range(3):
        callback.on_train_batch_end(number, {"loss": Loss(number)})
        assert read == [*range(max(number, 1))], "only the first one at once, for which the step is compiled"
    callback.settle()
    assert read == [0, 1, 2]


def test_several_batches_make_a_step(progress):
    callback = progress(done=3, batches_per_step=2, tokens_of_batch={6: 1, 7: 2, 8: 4, 9: 8})
    steps = []
    for _ in range(3):
        pass_batch(callback)
        steps.append(callback.step)
    callback.settle()
    assert (steps, callback.tokens, callback.tokens_of_batch) == ([3, 4, 4], 6, {9: 8})


def test_a_line_begins_with_the_time(capsys):
    announce("reading data")
    assert lines_of(capsys) == ["reading data"]


def test_what_takes_long_is_announced_and_nothing_else(capsys, monkeypatch):
    with taking_long("reading data"):
        pass
    assert lines_of(capsys) == []
    monkeypatch.setattr(module, "SECONDS_UNNOTICED", 0.01)
    with taking_long("reading data"):
        time.sleep(0.2)
    assert lines_of(capsys) == ["reading data"]


def test_what_was_chosen_settings():
    config = resolve("transformer_tiny", "dates", ["model.dropout=0.2", "training.max_steps=2000"])
    chosen = _chosen_settings(config)
    assert {"model.normalize_first=true", "training.max_steps=2000", "training.warmup_steps=300"} <= {*chosen}
    assert not any("dropout" in setting for setting in chosen), "the user chose it"
    assert _chosen_settings(resolve("transformer_tiny", "dates", ["model.normalize_first=off"]))[0] == (
        "model.normalize_first=false"
    )
