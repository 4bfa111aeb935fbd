"""Compares poolings of the states of a recurrent classifier: attention, mean and maximum."""

import statistics

from experiments.experiment import Claim, Experiment, grid
from experiments.runs import final_metrics, train_run

MODEL = "birnn_classifier"
POOLINGS = ("mean", "max", "attention")
UNITS = 50
QUICK = {"training.max_steps": 300, "training.eval_every": 100}
GENERATED = "senses"


class Classification(Experiment):
    """`birnn_classifier` with 50 units in each direction and its recipe; only `model.pooling` differs.

    The vector of a text is the mean of the states, their maximum in each feature, or their mean weighted by additive
    attention. Nothing was chosen on the test set, which is read once, at the end of each training.
    """

    name = "classification"
    question = "does attention help to classify?"
    source = "Yang et al. 2016, table 2: attention over words is better than their mean and maximum, on documents"
    refuted_by = "a mean accuracy with attention that is no higher than that of the mean or of the maximum"
    columns = {"accuracy": ".4f", "macro_f1": ".4f", "validation_accuracy": ".4f"}
    takes_data = True
    default_seeds = 5

    def cells(self, request):
        return grid(request.seeds, pooling=POOLINGS[::2] if request.quick else POOLINGS)

    def measure(self, cell, request):
        from training.evaluation.evaluate import evaluate

        settings = {"model.pooling": cell.settings["pooling"], "model.units": UNITS, **(QUICK if request.quick else {})}
        if request.steps:
            settings["training.max_steps"] = request.steps
        path = train_run(MODEL, request.data or GENERATED, settings, cell, request, self.name)
        test = evaluate(path, request.data or GENERATED, "test")
        metrics = {name: test[name] for name in ("accuracy", "macro_f1")}
        return {**metrics, "validation_accuracy": final_metrics(path)["accuracy"]}

    def claims(self):
        def gain(results, other):
            """Returns the gain in accuracy by attention."""
            return results.mean("accuracy", pooling="attention") - results.mean("accuracy", pooling=other)

        return [
            Claim(
                "with attention the mean accuracy is higher than with the mean of the states",
                lambda results: gain(results, "mean") > 0,
                strong=False,
            ),
            Claim(
                "it is higher than with their maximum, too",
                lambda results: gain(results, "max") > 0,
                strong=False,
                full_only=True,
            ),
            Claim(
                "both differences are larger than the deviation of accuracy with attention over the seeds",
                lambda results: (
                    min(gain(results, other) for other in POOLINGS[:2])
                    > statistics.stdev(results.values("accuracy", pooling="attention"))
                ),
                strong=False,
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        panel = figure.subplots()
        poolings = [pooling for pooling in POOLINGS if results.known("accuracy", pooling=pooling)]
        for column, pooling in enumerate(poolings):
            values = results.known("accuracy", pooling=pooling)
            panel.plot([column] * len(values), values, "o", color="C0", alpha=0.6)
            panel.plot(column, statistics.fmean(values), "_", color="C1", markersize=40)
        panel.set_xticks(range(len(poolings)), poolings)
        panel.set(xlim=(-0.5, len(poolings) - 0.5), ylabel="accuracy on the test set, each seed and their mean")


EXPERIMENT = Classification()
