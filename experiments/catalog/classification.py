"""A recurrent classifier that pools by attention, beside one that takes the last state."""

import statistics

from experiments.experiment import Claim, Experiment, grid
from experiments.runs import final_metrics, train_run

WITHOUT, WITH = "birnn_classifier", "birnn_attention_classifier"
QUICK = {"training.max_steps": 300, "training.eval_every": 100}
GENERATED = "senses"


class Classification(Experiment):
    """Two classifiers with the same bidirectional encoder, the same recipe and the same steps.

    `birnn_classifier` reads its last states, `birnn_attention_classifier` the mean of all of them, weighted by additive
    attention. Nothing was chosen on the test set, which is read once, at the end.
    """

    name = "classification"
    question = "does attention help to classify?"
    source = "Yang et al. 2016, table 2 (attention over words beside their mean); Zhou et al. 2016"
    refuted_by = "a mean accuracy without attention that is as high as with it"
    columns = {"accuracy": ".4f", "macro_f1": ".4f", "validation_accuracy": ".4f"}
    takes_data = True
    default_seeds = 5

    def cells(self, request):
        return grid(request.seeds, model=(WITHOUT, WITH))

    def measure(self, cell, request):
        from training.evaluation import evaluate

        settings = QUICK if request.quick else {}
        if request.steps:
            settings = {**settings, "training.max_steps": request.steps}
        path = train_run(cell.settings["model"], request.data or GENERATED, settings, cell, request, self.name)
        test = evaluate(path, request.data or GENERATED, "test")
        found = {name: test[name] for name in ("accuracy", "macro_f1")}
        return {**found, "validation_accuracy": final_metrics(path)["accuracy"]}

    def claims(self):
        return [
            Claim(
                "with attention the mean accuracy is higher",
                lambda results: results.mean("accuracy", model=WITH) > results.mean("accuracy", model=WITHOUT),
                strong=False,
            ),
            Claim(
                "the difference is larger than the deviation of either over the seeds",
                lambda results: (
                    results.mean("accuracy", model=WITH) - results.mean("accuracy", model=WITHOUT)
                    > max(statistics.stdev(results.values("accuracy", model=model)) for model in (WITH, WITHOUT))
                ),
                strong=False,
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        panel = figure.subplots()
        for place, model in enumerate((WITHOUT, WITH)):
            values = results.values("accuracy", model=model)
            panel.plot([place] * len(values), values, "o", color="C0", alpha=0.6)
            if values:
                panel.plot(place, sum(values) / len(values), "_", color="C1", markersize=40)
        panel.set_xticks((0, 1), (WITHOUT, WITH))
        panel.set(xlim=(-0.5, 1.5), ylabel="accuracy on the test set, each seed and their mean")


EXPERIMENT = Classification()
