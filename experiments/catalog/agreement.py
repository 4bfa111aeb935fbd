"""On text, where the true alignment is unknown: which models look at the same symbols."""

import keras
import numpy as np

import zoo
from experiments.experiment import Claim, grid
from experiments.translation import TranslatorExperiment, trained
from training.data import load_data
from zoo.vocabulary import PAD, START, pad

TEXTS = 200
LAYERS = {"luong_general": 1, "luong_dot": 1, "transformer_tiny": 4}


class Agreement(TranslatorExperiment):
    """The share of target symbols of validation sentences, as the references have them, for which a layer looks most at
    the symbol of the source that `rnnsearch` looks most at: of the mean of its heads, and of the head for which it is
    largest.
    """

    name = "agreement"
    question = "do different models look at the same symbols of a text?"
    source = "Bahdanau et al. 2015, figure 3; Luong et al. 2015, section 5.4"
    refuted_by = "a recurrent model that agrees with `rnnsearch` no more than the layers of a Transformer do"
    columns = {"agreement": ".3f", "best_head": ".3f"}

    def cells(self, request):
        # Quick models have two layers.
        return [
            cell
            for model, layers in LAYERS.items()
            if not request.quick or model == "transformer_tiny"
            for cell in grid(request.seeds, model=(model,), layer=range(1, 1 + (2 if request.quick else layers)))
        ]

    def measure(self, cell, request):
        models = ("rnnsearch", cell.settings["model"])
        reference, other = (zoo.load(trained(model, {}, cell, request)) for model in models)
        return _agreement(reference, other, cell.settings["layer"] - 1)

    def claims(self):
        return [
            Claim(
                "`luong_general` agrees with `rnnsearch` for half of the symbols and more",
                lambda results: results.mean("agreement", model="luong_general") > 0.5,
                full_only=True,
            ),
            Claim(
                "no layer of a Transformer, its heads taken together, agrees as much with it",
                lambda results: (
                    max(results.mean("agreement", model="transformer_tiny", layer=layer) for layer in range(1, 5))
                    < results.mean("agreement", model="luong_general")
                ),
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        panel = figure.subplots()
        groups = results.groups()
        for place, (settings, _) in enumerate(groups):
            panel.barh(place, results.mean("agreement", **settings), color="C0")
            panel.plot(results.mean("best_head", **settings), place, "k|", markersize=12)
        panel.set_yticks(range(len(groups)), [f"{own['model']}, layer {own['layer']}" for own, _ in groups])
        panel.invert_yaxis()
        panel.set(xlabel="share of symbols with the same place as `rnnsearch` (|: best head)", xlim=(0, 1))


def _agreement(reference, other, layer):
    """Returns how often the mean of the heads, and the best head, look most where another model looks most."""
    pairs = load_data(reference.config["data"]["spec"]).split("val").take(range(TEXTS))
    source = pad(reference.source_ids(pairs.source))
    begun = pad([[START, *row] for row in reference.tokenizers.target.encode(pairs.target)])
    looked_at, heads = (
        keras.ops.convert_to_numpy(run.model.attention(source, begun))[:, number]  # [B, heads, T, S]
        for run, number in ((reference, 0), (other, layer))
    )
    place, real = looked_at.mean(axis=1).argmax(axis=-1), begun != PAD
    alone = [(heads[:, head].argmax(axis=-1) == place)[real].mean() for head in range(heads.shape[1])]
    return {"agreement": (heads.mean(axis=1).argmax(axis=-1) == place)[real].mean(), "best_head": np.max(alone)}


EXPERIMENT = Agreement()
