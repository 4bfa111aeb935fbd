"""Measures why scores are divided by √d_k: variance, saturation and gradient on samples, and a training."""

import numpy as np

import zoo
from experiments.experiment import Cell, Claim, Experiment, grid
from experiments.runs import final_metrics, train_run
from zoo import layers

SIZES = (4, 16, 64, 256, 1024)
KEYS = 10
QUERIES = 2000
LAYERS = {"no": layers.DotAttention, "yes": layers.ScaledDotProductAttention}
MODELS = {"no": "transformer_tiny_unscaled", "yes": "transformer_tiny"}


class Scaling(Experiment):
    """Random queries and keys of unit variance, ten keys for a query; then `dates`, with the scale and without."""

    name = "scaling"
    question = "why are scores divided by √d_k?"
    source = "Vaswani et al. 2017, section 3.2.1 and its footnote: the dot product has mean 0 and variance d_k"
    refuted_by = (
        "a variance that does not grow as d_k, or a softmax whose largest weight and gradient do not change with d_k "
        "where nothing is scaled; in training, a loss without the scale that is as low as with it"
    )
    columns = {
        "variance": ".3g",
        "formula": ".3g",
        "entropy": ".3f",
        "largest_weight": ".3f",
        "gradient": ".2e",
        "cross_entropy": ".3f",
    }
    default_seeds = 3

    def cells(self, request):
        drawn = grid(request.seeds, d_k=SIZES, scaled=tuple(LAYERS))
        trained = grid(request.seeds, model=tuple(MODELS.values()))
        return drawn if request.quick else [*drawn, *trained]

    def measure(self, cell, request):
        if "model" in cell.settings:
            return self._trained(cell, request)
        size, scaled = cell.settings["d_k"], cell.settings["scaled"]
        draw = np.random.default_rng([cell.seed, size])
        query, key = (draw.normal(size=(QUERIES, count, size)).astype("float32") for count in (1, KEYS))
        trace = zoo.trace(LAYERS[scaled](), query, key)
        scores = trace["scaled_scores" if scaled == "yes" else "raw_scores"]
        weights = trace["weights"].astype("float64")
        return {
            "variance": np.var(scores),
            "formula": 1 if scaled == "yes" else size,
            "entropy": np.mean(-np.sum(weights * np.log(weights + 1e-300), axis=-1)),
            "largest_weight": np.mean(weights.max(axis=-1)),
            "gradient": np.median(weights * (1 - weights)),
        }

    def _trained(self, cell: Cell, request):
        settings = {"training.max_steps": 200, "training.eval_every": 100, "training.warmup_steps": 50}
        path = train_run(cell.settings["model"], "dates", settings, cell, request, self.name)
        return {"cross_entropy": final_metrics(path)["cross_entropy"]}

    def claims(self):
        return [
            Claim(
                "the variance of q · k is d_k within 10 %, and 1 after scaling, for every d_k",
                lambda results: all(
                    abs(metrics["variance"] / metrics["formula"] - 1) < 0.1
                    for _, _, metrics in results.complete().rows
                    if "formula" in metrics
                ),
            ),
            Claim(
                "without the scale the largest of ten weights is above 0.9 from d_k = 256 on; with it 0.32 ± 0.05",
                lambda results: (
                    min(results.mean("largest_weight", d_k=size, scaled="no") for size in (256, 1024)) > 0.9
                    and all(abs(results.mean("largest_weight", d_k=d, scaled="yes") - 0.32) < 0.05 for d in SIZES[1:])
                ),
            ),
            Claim(
                "at d_k = 256 the gradient of the softmax is a millionth of the scaled one, or less (median)",
                lambda results: (
                    results.mean("gradient", d_k=256, scaled="no")
                    < 1e-6 * results.mean("gradient", d_k=256, scaled="yes")
                ),
            ),
            Claim(
                "after 200 steps of `dates` the validation cross-entropy is lower with the scale, for every seed",
                lambda results: (
                    max(results.values("cross_entropy", model=MODELS["yes"]))
                    < min(results.values("cross_entropy", model=MODELS["no"]))
                ),
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        panels = figure.subplots(1, 3)
        titles = {
            "variance": "variance of the scores",
            "largest_weight": "largest of 10 weights",
            "gradient": "gradient",
        }
        for panel, (metric, title) in zip(panels, titles.items(), strict=True):
            for scaled, label in (("no", "q · k"), ("yes", "q · k / √d_k")):
                panel.plot(*results.line("d_k", metric, scaled=scaled), "o-", label=label)
            panel.set(xscale="log", xlabel="d_k", title=title)
        panels[0].plot(SIZES, SIZES, ":", color="gray", label="formula: d_k")
        panels[0].set(yscale="log")
        panels[2].set(yscale="log", title="α (1 − α), median")
        panels[1].axhline(1 / KEYS, color="gray", linestyle=":")
        panels[1].set(ylim=(0, 1.05))
        panels[0].legend()


EXPERIMENT = Scaling()
