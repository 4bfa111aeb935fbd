"""Compares score functions in `rnnsearch` and `luong`, as heads of a Transformer, and by size of the keys."""

from experiments.experiment import Claim, grid
from experiments.translation import LABELS, TranslatorExperiment, metrics

IN_RNNSEARCH = ("additive", "dot", "general", "scaled_dot", "cosine", "concat", "tanh_concat")
HEADS = {
    "scaled_dot": "transformer_tiny",
    "dot": "transformer_tiny_unscaled",
    "additive": "transformer_tiny_additive",
    "cosine": "transformer_tiny_cosine",
}
IN_LUONG = ("dot", "general", "concat")
KEY_SIZES = (16, 64, 256, 1024)


class Scores(TranslatorExperiment):
    """One budget, see `experiments.translation`; key sizes are those of the one head of `transformer_tiny_single_head`.

    Weights grow with them; the additive score would have 30 million at 1024, and is left out there. In `rnnsearch`,
    annotations are as large as states, so that dot products are defined.
    """

    name = "scores"
    question = "which score function is best, and does that change with the size of the keys?"
    source = "Luong et al. 2015, table 4; Britz et al. 2017, table 5: unscaled dot products fall off at large sizes"
    refuted_by = "unscaled dot products that are as good as scaled ones at every size of the keys"
    columns = {
        "bleu": ".2f",
        "cross_entropy": ".3f",
        "weights": ",.0f",
        "symbols_per_second": ",.0f",
        "megabytes": ",.0f",
        "exact_match": ".3f",
        "bleu_from_6": ".1f",
        "bleu_from_11": ".1f",
        "bleu_from_16": ".1f",
    }

    def cells(self, request):
        if request.quick:
            return grid(request.seeds, model=("single head",), score=("scaled_dot", "dot"), key_size=(256,))
        return [
            *grid(request.seeds, model=("transformer_tiny",), score=tuple(HEADS)),
            *grid(request.seeds, model=("rnnsearch",), score=IN_RNNSEARCH),
            *grid(request.seeds, model=("luong",), score=IN_LUONG),
            *grid(request.seeds, model=("single head",), score=("scaled_dot", "dot", "cosine"), key_size=KEY_SIZES),
            *grid(request.seeds, model=("single head",), score=("additive",), key_size=KEY_SIZES[:-1]),
        ]

    def measure(self, cell, request):
        model, score = cell.settings["model"], cell.settings["score"]
        if model == "transformer_tiny":
            return metrics(HEADS[score], {}, cell, request)
        if model == "luong":
            return metrics(f"luong_{score}", {}, cell, request)
        if model == "rnnsearch":
            return metrics(model, {} if score == "additive" else {"score": score}, cell, request)
        options = {"score": score, "key_dim": cell.settings["key_size"], "value_dim": 128}
        return metrics("transformer_tiny_single_head", options, cell, request)

    def claims(self):
        def lead(results, **settings):
            """Returns the reduction of the cross-entropy by the scale."""
            without, scaled = (results.mean("cross_entropy", score=name, **settings) for name in ("dot", "scaled_dot"))
            return without - scaled

        return [
            Claim(
                "with keys of 256 a single head has a lower cross-entropy with the scale than without",
                lambda results: lead(results, model="single head", key_size=256) > 0,
            ),
            Claim(
                "the scale gains more with keys of 1024 than with keys of 16",
                lambda results: (
                    lead(results, model="single head", key_size=1024) > lead(results, model="single head", key_size=16)
                ),
                full_only=True,
            ),
            Claim(
                "four heads of 32 (`transformer_tiny`) have a lower cross-entropy with the scale than without",
                lambda results: lead(results, model="transformer_tiny") > 0,
                full_only=True,
            ),
            Claim(
                "in `rnnsearch` no score is worse than another by 3 BLEU or more",
                lambda results: _spread([results.mean("bleu", model="rnnsearch", score=s) for s in IN_RNNSEARCH]) < 3,
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        left, right = figure.subplots(1, 2)
        quality = "bleu" if max(results.values("bleu"), default=0) > 0 else "exact_match"
        for model, color in (("rnnsearch", "C0"), ("luong", "C2"), ("transformer_tiny", "C1")):
            names = [score for score in IN_RNNSEARCH if results.values(quality, model=model, score=score)]
            left.plot(
                names, [results.mean(quality, model=model, score=name) for name in names], "o", color=color, label=model
            )
        left.set(title=f"{LABELS[quality]} by score")
        left.margins(y=0.4)  # space for the legend
        left.tick_params(axis="x", rotation=30)
        for score in HEADS:
            sizes, values = results.line("key_size", "cross_entropy", model="single head", score=score)
            if sizes:
                right.plot(sizes, values, "o-", label=score)
        right.set(title="validation cross-entropy of a single head", xlabel="size of the keys", xscale="log")
        for panel in (left, right):
            if panel.get_legend_handles_labels()[1]:
                panel.legend()


def _spread(values):
    return max(values) - min(values)


EXPERIMENT = Scores()
