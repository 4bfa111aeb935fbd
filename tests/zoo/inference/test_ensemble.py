"""Several translators as one."""

import json
import re

import keras
import numpy as np
import pytest
from support import seq2seq_models
from support.models import numpy

import zoo
from export.saved_model import export_saved_model
from training.evaluate import main
from training.evaluation import evaluate
from zoo.decoding_options import TranslationOptions
from zoo.errors import InputError
from zoo.inference.ensemble import Ensemble
from zoo.inference.translator import Scorer, Translator
from zoo.vocabulary import END, PAD
from zoo.workdir import WorkDir

PAIRS = {
    "the same": ("transformer_tiny", "transformer_tiny"),
    "other heads": ("transformer_tiny", "rnnsearch"),
    "one without attention": ("luong_general", "rnn_encdec"),
}


def members(names):
    return [seq2seq_models.create(name, without_shared(name), seed=seed) for seed, name in enumerate(names)]


def without_shared(name):
    """Options under which both sides have a vocabulary of their own, so that all members read the same one."""
    options = dict(seq2seq_models.SMALL[name][0])
    return {**options, "tied_embeddings": "none"} if options.get("tied_embeddings") == "all" else options


def mean_log_prob(logits):
    log_probs = np.stack([own - np.logaddexp.reduce(own, axis=-1, keepdims=True) for own in logits])
    return np.logaddexp.reduce(log_probs, axis=0) - np.log(len(logits))


@pytest.mark.parametrize("names", PAIRS.values(), ids=PAIRS.keys())
def test_logits_are_those_of_the_mean_probability(names):
    models, (source, target) = members(names), seq2seq_models.batch()
    expected = mean_log_prob([seq2seq_models.logits(model, source, target) for model in models])
    ensemble = Ensemble(models)
    np.testing.assert_allclose(seq2seq_models.logits(ensemble, source, target), expected, atol=1e-5)
    real = target != PAD
    np.testing.assert_allclose(seq2seq_models.steps(ensemble, source, target)[real], expected[real], atol=1e-5)


def test_one_member_is_the_model():
    (model,), (source, _) = members(["transformer_tiny"]), seq2seq_models.batch()
    options = TranslationOptions(beam_size=3, max_length=6)
    alone, one = (Translator(each, options)({"source": source}) for each in (model, Ensemble([model])))
    np.testing.assert_array_equal(numpy(alone["ids"]), numpy(one["ids"]))
    np.testing.assert_allclose(numpy(alone["log_prob"]), numpy(one["log_prob"]), atol=1e-5)


@pytest.mark.parametrize("names", PAIRS.values(), ids=PAIRS.keys())
def test_beams_have_the_probability_that_the_ensemble_gives_them(names):
    source, _ = seq2seq_models.batch()
    ensemble = Ensemble(members(names))
    found = Translator(ensemble, TranslationOptions(beam_size=3, max_length=6))({"source": source})
    for place in range(3):
        ids = found["ids"][:, place]
        whole = np.any(numpy(ids) == END, axis=1)  # a text without its end has no probability of it
        scores = numpy(Scorer(ensemble)({"source": source, "target": ids}))
        np.testing.assert_allclose(numpy(found["log_prob"])[whole, place], scores[whole], atol=1e-4)


def test_attention_stands_side_by_side():
    source, target = seq2seq_models.batch()
    models = members(PAIRS["the same"])
    alike = Ensemble(models)
    layers = [numpy(model.attention(source, target)) for model in models]
    np.testing.assert_allclose(numpy(alike.attention(source, target)), np.concatenate(layers, axis=1), atol=1e-6)
    kinds = alike.attentions(source, target)
    assert set(kinds) == set(alike.attention_kinds) == {"cross", "encoder", "decoder"}

    other = Ensemble(members(PAIRS["other heads"]))
    one, two = (numpy(model.attention(source, target)) for model in other.members)
    assert one.shape[2] == 3 and two.shape[2] == 1 and other.attention_kinds == ("cross",)
    joined = numpy(other.attention(source, target))
    np.testing.assert_allclose(joined, np.concatenate([one.mean(axis=2, keepdims=True), two], axis=1), atol=1e-6)
    covered = TranslationOptions(beam_size=2, max_length=4, coverage_penalty=0.3)
    assert numpy(Translator(other, covered)({"source": source})["ids"]).shape[:2] == (3, 2)
    assert not Ensemble(members(PAIRS["one without attention"])).attends


@pytest.fixture(scope="module")
def two(text_workdir, tmp_path_factory):
    """A work directory, and another one of other weights with the same tokenizers."""
    other = WorkDir(tmp_path_factory.mktemp("runs") / "other")
    WorkDir(text_workdir).copy_to(other)
    model = keras.saving.load_model(WorkDir(text_workdir).model, compile=False)
    chance = np.random.default_rng(1)
    for weight in model.trainable_variables:
        weight.assign(weight + chance.normal(0, 0.05, weight.shape))
    with other.replacing(other.model) as path:
        model.save(path)
    return [text_workdir, other.path]


TEXTS = ["the old horse sleeps .", "a red house burns and the girl sees ."]


def test_a_list_of_work_directories_is_an_ensemble(two):
    runs, ensemble = [zoo.load(path) for path in two], zoo.load(two)
    targets = ["das altes Pferd schläft .", "ein Haus brennt ."]
    one, other, both = (run.score(TEXTS, targets) for run in (*runs, ensemble))
    assert len({round(scores[0], 3) for scores in (one, other, both)}) == 3
    with pytest.raises(InputError, match="transformer_tiny has no attention of the kind 'between'"):
        ensemble.attention(TEXTS, kind="between")
    answers = [run.nbest(TEXTS, beam_size=2) for run in (*runs, ensemble)]
    assert len({round(beam[0].log_prob, 3) for beam, _ in answers}) == 3
    assert [member.path for member in ensemble.members] == two


def test_what_cannot_be_an_ensemble(two, dates_workdir, labelled_workdir):
    with pytest.raises(InputError, match="at least one work directory"):
        zoo.load([])
    with pytest.raises(InputError, match=f"{re.escape(str(dates_workdir))} have other symbols"):
        zoo.load([two[0], dates_workdir])
    with pytest.raises(InputError, match=f"{re.escape(str(labelled_workdir))} holds a classifier model"):
        zoo.load([two[0], labelled_workdir])
    with pytest.raises(InputError, match="is named twice"):
        zoo.load([two[0], two[0]])
    for one in (two[1], str(two[1])):
        with pytest.raises(InputError, match="list of work directories"):
            evaluate(two[0], split="val", ensemble=one)
        with pytest.raises(InputError, match="list of work directories"):
            export_saved_model(two[0], "unused", ensemble=one)


@pytest.mark.nightly
def test_an_evaluation_names_its_ensemble(two, capsys):
    found = {}
    for more in ([], ["--ensemble", str(two[1])]):
        main([str(two[0]), "--split", "val", *more])
        found[len(more)] = json.loads(capsys.readouterr().out)
    assert found[2]["ensemble"] == str(two[1]) and "ensemble" not in found[0]
    assert found[2]["cross_entropy"] != found[0]["cross_entropy"]
    assert len(list((two[0] / "evaluation").glob("val_beam_1*ensemble_*.json"))) == 1
    lines = WorkDir(two[0]).model_card.read_text().splitlines()
    alone, together = (
        [line for line in lines if "`val` of" in line and "beam_size 1" in line and ("ensemble" in line) is wanted]
        for wanted in (False, True)
    )
    assert len(alone) == len(together) == 1 and f"ensemble {two[1]}" in together[0]


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{}, {"weights": "int8", "beam_size": 3}, {"dynamic_batching": True, "xla": True}])
def test_an_export_of_an_ensemble(two, tmp_path, options):
    """It is loaded without this project, and asked all its signatures: `check`."""
    folder = export_saved_model(two[0], tmp_path, check=True, ensemble=[two[1]], **options)
    record = json.loads((folder / "assets.extra" / "attention_zoo.json").read_text())
    assert [member["name"] for member in record["ensemble"]] == [path.name for path in two]
    card = (folder / "assets.extra" / "MODEL_CARD.md").read_text()
    assert f"- An ensemble of 2: {two[0].name}, other; the above is of the first\n" in card
    assert ("weights" in options) is ("not measured: run `python -m training.evaluate DIR --weights int8" in card)
    assert ("weights" in options) is (f" --ensemble {two[1]}`" in card)
