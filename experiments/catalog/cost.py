"""Counts and measures the costs of self-attention, recurrence, convolution, and local and linear attention."""

import statistics
import time

import keras
import numpy as np

import zoo
from experiments.experiment import Claim, Experiment, grid
from zoo import layers

WIDTH = 3
WINDOW = 16
KINDS = {
    "self-attention": lambda size: layers.MultiHeadAttention(num_heads=1, key_dim=size, use_bias=False),
    "local": lambda size: layers.SlidingWindowAttention(num_heads=1, key_dim=size, window=WINDOW, use_bias=False),
    "linear": lambda size: layers.LinearAttention(num_heads=1, key_dim=size, use_bias=False),
    "recurrence": lambda size: keras.layers.SimpleRNN(size, return_sequences=True, use_bias=False),
    "convolution": lambda size: keras.layers.Conv1D(size, WIDTH, padding="same", use_bias=False),
}
LENGTHS = (32, 128, 512, 2048)
TURNS = 21


class Cost(Experiment):
    """The compiled forward pass of one layer on one text; steps and path are those of `zoo.cost`.

    Milliseconds are the median processor time of 21 calls; processor time excludes other work on the machine.
    """

    name = "cost"
    question = "what do attention, recurrence and convolution cost?"
    source = "Vaswani et al. 2017, section 4: n²·d, n·d², k·n·d² operations; 1, n and 1 steps; paths of 1, n and n/k"
    refuted_by = "counts that grow otherwise with n or d, or a recurrence that is as fast as attention on short texts"
    columns = {
        "multiplications": ",.0f",
        "scores": ",.0f",
        "sequential_steps": ".0f",
        "path_length": ".0f",
        "milliseconds": ",.2f",
        "megabytes": ",.2f",
    }

    def cells(self, request):
        lengths = LENGTHS[:3] if request.quick else LENGTHS
        return [
            *grid(1, kind=tuple(KINDS), n=lengths, d=(64,)),
            *grid(1, kind=tuple(KINDS), n=(128,), d=(16, 256)),
        ]

    def measure(self, cell, request):
        length, size = cell.settings["n"], cell.settings["d"]
        layer = KINDS[cell.settings["kind"]](size)
        attends = isinstance(layer, layers.BaseAttention)
        inputs = np.random.default_rng(cell.seed).normal(size=(1, length, size)).astype("float32")
        arguments = [inputs, inputs] if attends else [inputs]
        layer(*arguments)
        cost = zoo.cost(layer, query_length=length)
        projections = 4 * length * size**2 if attends else 0
        return {
            "multiplications": cost.multiplications,
            "scores": cost.multiplications - projections,
            "sequential_steps": cost.sequential_steps,
            "path_length": cost.path_length,
            "megabytes": cost.bytes / 1e6,
            "milliseconds": 1000 * _seconds(layer, arguments),
        }

    def claims(self):
        def slope(results, kind, metric):
            lengths, values = results.complete().line("n", metric, kind=kind, d=64)
            return np.polyfit(np.log(lengths[1:]), np.log(values[1:]), 1)[0]

        return [
            Claim(
                "without its projections, attention has multiplications ∝ n²: a slope of 2 within 0.1",
                lambda results: abs(slope(results, "self-attention", "scores") - 2) < 0.1,
            ),
            Claim(
                "all others have multiplications ∝ n: slopes of 1 within 0.1",
                lambda results: all(
                    abs(slope(results, kind, "multiplications") - 1) < 0.1
                    for kind in ("local", "linear", "recurrence", "convolution")
                ),
            ),
            Claim(
                "recurrence has n sequential steps, self-attention and convolution 1; the path is 1 for "
                "self-attention, n for recurrence, n/3 for convolution",
                lambda results: all(
                    (metrics["sequential_steps"], metrics["path_length"]) == _in_theory(settings)
                    for settings, _, metrics in results.complete().rows
                    if settings["kind"] in ("self-attention", "recurrence", "convolution")
                ),
            ),
            Claim(
                "scores and sum (2 n² d) cost less than a recurrence (2 n d²) where n < d, and more where n > d",
                lambda results: (
                    results.mean("scores", kind="self-attention", n=128, d=256)
                    < results.mean("multiplications", kind="recurrence", n=128, d=256)
                    and results.mean("scores", kind="self-attention", n=512, d=64)
                    > results.mean("multiplications", kind="recurrence", n=512, d=64)
                ),
            ),
            Claim(
                "on 512 positions of 64 features attention takes less time than the recurrence, and multiplies more",
                lambda results: (
                    results.mean("milliseconds", kind="self-attention", n=512, d=64)
                    < results.mean("milliseconds", kind="recurrence", n=512, d=64)
                    and results.mean("multiplications", kind="self-attention", n=512, d=64)
                    > results.mean("multiplications", kind="recurrence", n=512, d=64)
                ),
            ),
            Claim(
                "on 2048 positions linear attention takes less time than self-attention",
                lambda results: (
                    results.mean("milliseconds", kind="linear", n=2048, d=64)
                    < results.mean("milliseconds", kind="self-attention", n=2048, d=64)
                ),
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        panels = figure.subplots(1, 3)
        for kind in KINDS:
            panels[0].plot(*results.line("n", "multiplications", kind=kind, d=64), "o-", label=kind)
            panels[1].plot(*results.line("n", "milliseconds", kind=kind, d=64), "o-", label=kind)
            panels[2].plot(*results.line("d", "milliseconds", kind=kind, n=128), "o-", label=kind)
        panels[0].set(title="multiplications, d = 64", xlabel="n")
        panels[1].set(title="milliseconds, d = 64", xlabel="n")
        panels[2].set(title="milliseconds, n = 128", xlabel="d")
        for panel in panels:
            panel.set(xscale="log", yscale="log")
        panels[2].set_xticks((16, 64, 256), ("16", "64", "256"), minor=False)
        panels[2].set_xticks((), minor=True)
        panels[0].legend(fontsize=8)


def _in_theory(settings):
    length = settings["n"]
    return {"self-attention": (1, 1), "recurrence": (length, length), "convolution": (1, -(-length // WIDTH))}[
        settings["kind"]
    ]


def _seconds(layer, arguments):
    """Returns the median processor time of a compiled call."""
    inputs = [keras.Input(shape=argument.shape[1:], batch_size=1) for argument in arguments[:1]]
    model = keras.Model(inputs, layer(*inputs * len(arguments)))
    model.predict_on_batch(arguments[0])
    times = []
    for _ in range(TURNS):
        start = time.process_time()
        model.predict_on_batch(arguments[0])
        times.append(time.process_time() - start)
    return statistics.median(times)


EXPERIMENT = Cost()
