"""Compares the attention of models on text, where the true alignment is unknown."""

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
    """The share of target tokens, of the references of validation sentences, for which the largest attention weight of
    a layer is at the same source token as that of `rnnsearch`: for the mean of the layer's heads, and for its best
    head.
    """

    name = "agreement"
    question = "do different models look at the same tokens of a text?"
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
                "`luong_general` agrees with `rnnsearch` for half of the tokens and more",
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
        for row, (settings, _) in enumerate(groups):
            panel.barh(row, results.mean("agreement", **settings), color="C0")
            panel.plot(results.mean("best_head", **settings), row, "k|", markersize=12)
        panel.set_yticks(range(len(groups)), [f"{own['model']}, layer {own['layer']}" for own, _ in groups])
        panel.invert_yaxis()
        panel.set(xlabel="share of tokens with the same place as `rnnsearch` (|: best head)", xlim=(0, 1))


def _agreement(reference, other, layer):
    """Returns how often the heads' mean, and the best head, have their maximum at the same token as the reference."""
    pairs = load_data(reference.config["data"]["spec"]).split("val").take(range(TEXTS))
    source = pad(reference.source_ids(pairs.source))
    inputs = pad([[START, *row] for row in reference.tokenizers.target.encode(pairs.target)])
    reference_heads, heads = (
        keras.ops.convert_to_numpy(run.model.attention(source, inputs))[:, number]  # [B, heads, T, S]
        for run, number in ((reference, 0), (other, layer))
    )
    argmax, real = reference_heads.mean(axis=1).argmax(axis=-1), inputs != PAD
    alone = [(heads[:, head].argmax(axis=-1) == argmax)[real].mean() for head in range(heads.shape[1])]
    return {"agreement": (heads.mean(axis=1).argmax(axis=-1) == argmax)[real].mean(), "best_head": np.max(alone)}


EXPERIMENT = Agreement()
