"""Varies the initial state of a recurrent decoder, its readout and its input feeding."""

from experiments.dates import trained
from experiments.experiment import Claim, Experiment, grid
from experiments.runs import final_metrics

STARTS = ("zero", "random", "learned", "encoder")
READOUTS = ("previous", "new")


class State(Experiment):
    """`rnnsearch` with each start, and with a readout of the state before or after its update; `luong_general` with
    input feeding and without. On `dates`, with 100,000 weights each.
    """

    name = "state"
    question = "does it matter where a decoder starts, and when it attends?"
    source = "Bahdanau et al. 2015, appendix A (s₀ from the encoder); Luong et al. 2015, section 3.3 (input feeding)"
    refuted_by = "starts or readouts that differ by more than seeds do; input feeding that gains nothing"
    columns = {"cross_entropy": ".4f", "perplexity": ".3f"}
    default_seeds = 3

    def cells(self, request):
        starts = ("zero", "encoder") if request.quick else STARTS
        return [
            *grid(request.seeds, model=("rnnsearch",), start_state=starts),
            *grid(request.seeds, model=("rnnsearch",), readout_state=READOUTS[1:]),
            *grid(request.seeds, model=("luong_general",), input_feeding=("true", "false")),
        ]

    def measure(self, cell, request):
        options = {name: value for name, value in cell.settings.items() if name != "model"}
        path = trained(cell.settings["model"], options, cell, request, self.name)
        return {name: final_metrics(path)[name] for name in self.columns}

    def claims(self):
        return [
            Claim(
                "a start from the encoder is as good as zeros: less than 0.05 nats between them, since attention finds "
                "the same information",
                lambda results: (
                    abs(
                        results.mean("cross_entropy", start_state="zero")
                        - results.mean("cross_entropy", start_state="encoder")
                    )
                    < 0.05
                ),
                strong=False,
            ),
            Claim(
                "a readout of the new state is better than one of the state before, for every seed",
                lambda results: (
                    max(results.values("cross_entropy", readout_state="new"))
                    < min(results.values("cross_entropy", start_state="encoder"))
                ),
                strong=False,
            ),
            Claim(
                "input feeding lowers the cross-entropy",
                lambda results: (
                    results.mean("cross_entropy", input_feeding="true")
                    < results.mean("cross_entropy", input_feeding="false")
                ),
                strong=False,
            ),
        ]

    def draw(self, results, figure):
        panel = figure.subplots()
        groups = results.groups()
        labels = [" ".join(f"{name}={value}" for name, value in settings.items()) for settings, _ in groups]
        for row, (settings, _) in enumerate(groups):
            values = results.values("cross_entropy", **settings)
            panel.barh(row, sum(values) / len(values), color="C0" if settings["model"] == "rnnsearch" else "C1")
            panel.plot(values, [row] * len(values), "k.", alpha=0.6)
        panel.set_yticks(range(len(groups)), [label.removeprefix("model=") for label in labels])
        panel.invert_yaxis()
        panel.set(xlabel="validation cross-entropy, nats a token")


EXPERIMENT = State()
