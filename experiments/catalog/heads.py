"""Varies the number of heads, measures what they attend to, and removes them."""

import keras
import numpy as np

import zoo
from experiments.dates import trained
from experiments.experiment import Claim, Experiment, grid
from experiments.runs import final_metrics
from zoo.vocabulary import END, START, pad

COUNTS = (1, 2, 4, 8, 16)
SCORES = ("scaled_dot", "additive")
TEXTS = 300
LOOKED_AT = 50
SHARES = (25, 50, 75, 100)


class Heads(Experiment):
    """`transformer_tiny` of 2+2 layers, d 64, on `dates`; the total size of the heads does not depend on their number.

    What heads look at: the largest share of attention, over the encoder's heads, on the token before, the one after,
    other positions with the same token, and the end. Pruning: the share of validation tokens that are predicted
    right, with teacher forcing, when heads are removed; first those whose single removal costs least.
    """

    name = "heads"
    question = "how many heads does attention need, and what do they look at?"
    source = "Vaswani et al. 2017, table 3 A; Michel et al. 2019, tables 1 and 2 and figure 1"
    refuted_by = "a single head that is as good as several; accuracy that falls with every head that is removed"
    columns = {
        "cross_entropy": ".4f",
        "to_previous": ".2f",
        "to_next": ".2f",
        "to_same": ".2f",
        "to_end": ".2f",
        "accuracy": ".3f",
        "worst_removed": ".3f",
        "median_removed": ".3f",
        **{f"pruned_{share}": ".3f" for share in SHARES},
    }
    default_seeds = 3

    def cells(self, request):
        if request.quick:
            return grid(request.seeds, heads=(1, 4), score=SCORES[:1])
        return grid(request.seeds, heads=COUNTS, score=SCORES)

    def measure(self, cell, request):
        options = {"num_heads": cell.settings["heads"], "score": cell.settings["score"]}
        path = trained("transformer_tiny", options, cell, request, self.name)
        run = zoo.load(path)
        result = {"cross_entropy": final_metrics(path)["cross_entropy"], **_looked_at(run)}
        return result if cell.settings["heads"] == 1 else {**result, **_pruned(run)}

    def claims(self):
        return [
            Claim(
                "a head of the encoder gives more than 40 % of its attention to the token before or after",
                lambda results: max(results.values("to_previous") + results.values("to_next")) > 0.4,
                strong=False,
            ),
            Claim(
                "the median head can be removed for less than 2 points of accuracy, the worst one costs more than that",
                lambda results: (
                    results.mean("accuracy", heads=4, score="scaled_dot")
                    - results.mean("median_removed", heads=4, score="scaled_dot")
                    < 0.02
                    < results.mean("accuracy", heads=4, score="scaled_dot")
                    - results.mean("worst_removed", heads=4, score="scaled_dot")
                ),
                strong=False,
            ),
            Claim(
                "without any head accuracy is far below: by 20 points and more",
                lambda results: (
                    results.mean("accuracy", heads=4, score="scaled_dot")
                    > results.mean("pruned_100", heads=4, score="scaled_dot") + 0.2
                ),
            ),
            Claim(
                "four heads have a lower cross-entropy than one, and than sixteen, with dot products",
                lambda results: (
                    results.mean("cross_entropy", heads=4, score="scaled_dot")
                    < min(results.mean("cross_entropy", heads=count, score="scaled_dot") for count in (1, 16))
                ),
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        left, right = figure.subplots(1, 2)
        for score in SCORES:
            counts, values = results.line("heads", "cross_entropy", score=score)
            if counts:
                left.plot(counts, values, "o-", label=score)
        left.set(title="validation cross-entropy", xlabel="heads", xscale="log")
        left.set_xticks(COUNTS, COUNTS)
        left.set_xticks((), minor=True)
        left.legend()
        for count in results.line("heads", "accuracy", score="scaled_dot")[0]:
            values = [results.mean(name, heads=count, score="scaled_dot") for name in ("accuracy", *_PRUNED)]
            right.plot((0, *SHARES), values, "o-", label=f"{count} heads")
        right.set(title="tokens predicted right", xlabel="heads removed, in percent", ylim=(0, 1.05))
        right.legend()


_PRUNED = tuple(f"pruned_{share}" for share in SHARES)


def _looked_at(run):
    """Returns the largest mean share of attention of an encoder head on each kind of position."""
    texts = _pairs().source[:LOOKED_AT]
    shares = {name: [] for name in ("to_previous", "to_next", "to_same", "to_end")}
    for tokens, weights in run.attention(texts, kind="encoder"):
        positions, token_ids = np.arange(len(tokens)), np.array(tokens)
        same = (token_ids[:, None] == token_ids[None]) & ~np.eye(len(tokens), dtype=bool)
        kinds = {
            "to_previous": positions[:, None] - 1 == positions[None],
            "to_next": positions[:, None] + 1 == positions[None],
            "to_same": same,
            "to_end": np.broadcast_to(positions == len(tokens) - 1, same.shape),
        }
        for name, where in kinds.items():
            rows = where.any(axis=1)
            shares[name].append((weights * where).sum(axis=-1)[..., rows].mean(axis=-1))
    return {name: float(np.mean(values, axis=0).max()) for name, values in shares.items()}


def _pruned(run):
    """Returns the accuracy with all heads, without a single one, and with increasing shares of them removed."""
    heads = [(layer, head) for layer in _attention_layers(run.model) for head in range(layer.num_heads)]
    measure = _accuracy(run)
    alone = []
    for layer, head in heads:
        kernel = keras.ops.convert_to_numpy(layer.output_dense.kernel).copy()
        _remove(layer, head)
        alone.append(measure())
        layer.output_dense.kernel.assign(kernel)
    result = {"accuracy": measure(), "worst_removed": min(alone), "median_removed": float(np.median(alone))}
    order = np.argsort(-np.array(alone), kind="stable")
    removed = 0
    for share in SHARES:
        while removed < len(heads) * share // 100:
            _remove(*heads[order[removed]])
            removed += 1
        result[f"pruned_{share}"] = measure()
    return result


def _attention_layers(model):
    encoder = [block.attention for block in model.encoder_blocks]
    return encoder + [
        layer for block in model.decoder_blocks for layer in (block.self_attention, block.cross_attention)
    ]


def _remove(layer, head):
    """Removes a head from a layer by zeroing its part of the output projection."""
    kernel = keras.ops.convert_to_numpy(layer.output_dense.kernel).copy()
    kernel[head * layer.value_dim : (head + 1) * layer.value_dim] = 0
    layer.output_dense.kernel.assign(kernel)


def _accuracy(run):
    pairs = _pairs()
    source = pad(run.source_ids(pairs.source[:TEXTS]))
    target = pad([[*row, END] for row in run.tokenizers.target.encode(pairs.target[:TEXTS])])
    inputs = np.concatenate([np.full((len(target), 1), START, target.dtype), target[:, :-1]], axis=1)

    def measure():
        logits = run.model.predict_on_batch({"source": source, "target": inputs})
        return float(np.mean((logits.argmax(axis=-1) == target)[target != 0]))

    return measure


def _pairs():
    from training.data import load_data

    return load_data("dates").split("val")


EXPERIMENT = Heads()
