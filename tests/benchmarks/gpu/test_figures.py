"""The plan, what is asked of it, and how a figure is described. Without JAX."""

import importlib
import json
import math

import numpy as np
import pytest

import zoo
from benchmarks.gpu import lengths, plan, serving
from benchmarks.gpu.figure import JAX, OURS, TORCH
from benchmarks.gpu.goals import goals
from benchmarks.gpu.results import Results
from benchmarks.gpu.trace import Kernel, kernels_of, write_kernels
from benchmarks.peers.attention_kinds import attended_pairs, lengths_of, operations
from training.hardware.peaks import PEAKS


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path, "abc123")


def test_the_plan_begins_with_what_matters_most_and_has_each_figure_once():
    figures = plan.figures()
    labels = [figure.label for figure in figures]
    assert len(set(labels)) == len(labels)
    assert [figure.name for figure in figures[:5]] == [
        "first step",
        *["transformer_base"] * 2,
        *["transformer_big"] * 2,
    ]
    assert {figure.library for figure in figures} == {JAX, TORCH}
    for figure in map(plan.tiny, figures):
        assert json.loads(json.dumps(figure.task()))["kind"] == figure.kind
        assert figure.work["turns"] <= 2 and figure.work["precision"] == "float32"


def test_the_language_model_has_124_million_weights():
    (ours, *_) = (figure for figure in plan.figures() if figure.kind == "language_model")
    work, options = ours.work, ours.work["options"]
    sizes = {"vocab_size": work["vocabulary"], "max_length": work["target_length"], **options, "num_layers": 1}
    block = zoo.create_model("causal_lm_modern", **{**sizes, "vocab_size": 67})
    table = 67 * work["dim"]
    weights = work["layers"] * (block.count_params() - table) + work["vocabulary"] * work["dim"]
    assert weights == pytest.approx(124e6, rel=0.01)


def test_every_goal_is_of_a_figure_of_the_plan(results):
    assert {goal.value for goal in goals(results)} == {"not yet measured"}
    for figure in plan.figures():
        results.write(figure.name, figure.contestant, rate=10.0, share_of_peak=0.45, peak_memory=5e9, ready=20.0)
    found = goals(results)
    assert [goal.met for goal in found] == [False, False, True, True, True, True, False, True, True, True]
    assert "20 s" in str(found[-1])


def test_ours_counts_with_the_better_of_its_layers(results):
    name, peer = "attention, window, T=4k", plan.FLEX
    results.write(name, peer, rate=10.0)
    results.write(name, OURS, rate=3.0)
    results.write(name, f"{OURS}, SlidingWindowAttention", rate=9.5)
    (goal,) = (goal for goal in goals(results) if goal.what.startswith(name))
    assert goal.met and "0.95×" in goal.value


def test_a_figure_is_described_by_its_median_and_the_share_of_the_peak():
    answer = serving.described([0.5, 0.2, 0.4], 100, "tokens", 0.1 * PEAKS["h100"], "NVIDIA H100 80GB HBM3")
    assert answer["rate"] == pytest.approx(250) and answer["milliseconds"] == pytest.approx(400)
    assert answer["share_of_peak"] == pytest.approx(0.25)
    assert serving.described([1.0], 1, "tokens", 1e9, "cpu")["share_of_peak"] is None


def test_turns_are_queued_and_waited_for_in_groups():
    events = []
    task = {"warm_up": 2, "turns": 6, "groups": 3}
    seconds = serving.take_turns(lambda: events.append("turn"), lambda: events.append("wait"), task)
    assert len(seconds) == 3 and events == [*["turn"] * 2, "wait", *["turn", "turn", "wait"] * 3]


class Channel:
    """A channel whose requests are given."""

    def __init__(self, *requests):
        self.requests, self.sent, self.left = list(requests), [], False

    def receive(self):
        return self.requests.pop(0) if self.requests else None

    def send(self, **values):
        self.sent.append(values)

    def leave(self):
        self.left = True


class Failing(serving.Library):
    card, versions = "a card", {"jax": "1.2.3"}

    def measure(self, task):
        if "error" in task:
            raise RuntimeError(task["error"])
        return {"rate": 5.0}


@pytest.mark.filterwarnings("ignore")
def test_a_process_goes_on_unless_the_device_may_be_broken(capsys):
    tasks = [{"error": "RESOURCE_EXHAUSTED: out of memory"}, {}, {"error": "CUDA_ERROR_ILLEGAL_ADDRESS\nmore"}, {}]
    channel = Channel({"prepare": []}, {"wait": 1}, *({"measure": task} for task in tasks))
    serving.serve(channel, Failing())
    about = {"card": "a card", "versions": {"jax": "1.2.3"}}
    unavailable = {"unavailable": "RuntimeError: RESOURCE_EXHAUSTED: out of memory"}
    assert channel.sent == [about, {}, about, unavailable, {"rate": 5.0, **about}]
    assert channel.left and capsys.readouterr().err.splitlines()[-1] == "RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS"


def test_pairs_are_counted_as_they_see_each_other():
    task = {"batch": 2, "length": 7, "heads": 3, "size": 5, "window": 3}
    query, key = np.arange(7)[:, None], np.arange(7)
    masks = {
        "causal": query >= key,
        "alibi": query >= key,
        "window": (query >= key) & (query - key < 3),
        "additive": np.ones((7, 7), bool),
    }
    for kind, mask in masks.items():
        assert attended_pairs({**task, "attention": kind}) == 2 * mask.sum(), kind
    padded = {**task, "attention": "padded"}
    assert lengths_of(padded).tolist() == [3, 7] and attended_pairs(padded) == 7 * (3 + 7)
    assert operations(padded) == 70 * 3 * 6 * 2 * 5 and operations({**task, "attention": "additive"}) == 0


def test_sentences_are_as_long_as_those_of_multi30k():
    assert sum(lengths.GERMAN) == 29_000
    mean = sum(length * count for length, count in enumerate(lengths.GERMAN)) / 29_000
    assert mean == pytest.approx(16.4, abs=0.1)
    assert np.mean(lengths.draw(5000)) == pytest.approx(mean, abs=0.5)
    padded, ordered, packed = lengths.padded(97, 54), lengths.sorted_by_length(97, 24), lengths.packed(13, 257)
    shares = [np.count_nonzero(each) / each.size for each in (padded, ordered, packed)]
    assert shares[0] < 0.35 and 0.75 < shares[1] < 0.95 and shares[2] > 0.93


def test_packed_sentences_follow_each_other():
    packed = lengths.packed(5, 61)
    for row in packed:
        real = row[row > 0]
        assert (np.diff(real) >= 0).all() and set(np.diff(real)) <= {0, 1} and real[0] == 1
        assert (row[len(real) :] == 0).all()


def event(name, duration, pid=1, tid=1, **args):
    return {"ph": "X", "name": name, "dur": duration, "pid": pid, "tid": tid, "args": args}


def named(kind, name, pid=1, tid=None):
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def test_kernels_of_a_device_are_added_up_by_kind(tmp_path):
    streams = [
        named("process_name", "/device:GPU:0"),
        named("thread_name", "Stream #13(Compute)", tid=1),
        named("thread_name", "XLA Ops", tid=2),
        event("loop_fusion_12", 3000),
        event("loop_fusion.3", 1000),
        event("gemm_7", 5000),
        event("loop_fusion_12", 9000, tid=2),
        event("python", 70_000, pid=2),
    ]
    kernels = kernels_of({"traceEvents": streams})
    assert kernels == [
        Kernel("gemm", 1, pytest.approx(0.005), "gemm_7"),
        Kernel("loop_fusion", 2, pytest.approx(0.004), "loop_fusion_12"),
    ]
    write_kernels(kernels, tmp_path / "profile.csv")
    first = (tmp_path / "profile.csv").read_text(encoding="utf-8").splitlines()[1]
    assert first.split(",") == ["gemm", "1", "5.0000", "0.5556", "gemm_7"]


def test_without_a_device_operations_of_xla_count():
    events = [event("dot.3", 1000, hlo_op="dot.3"), event("something else", 5000)]
    assert [kernel.name for kernel in kernels_of({"traceEvents": events})] == ["dot"]


@pytest.mark.parametrize(
    ("arguments", "received"), [(["--minutes", "-3"], "-3"), (["--cache", "nowhere.tar"], "nowhere.tar")]
)
def test_command_refuses_what_cannot_be(arguments, received, tmp_path, capsys):
    main = importlib.import_module("benchmarks.gpu.__main__").main
    with pytest.raises(SystemExit) as ended:
        main(["--output", str(tmp_path), *arguments])
    assert ended.value.code == 2 and received in capsys.readouterr().err


def test_a_model_of_pytorch_is_measured_for_as_many_tokens_as_ours():
    by_name = {}
    for figure in plan.figures():
        if figure.kind in ("translator", "language_model"):
            by_name.setdefault(figure.name, []).append(figure.work["batch"] * figure.work["target_length"])
    assert all(len(set(tokens)) == 1 and math.isclose(tokens[0], 32_768) for tokens in by_name.values())
