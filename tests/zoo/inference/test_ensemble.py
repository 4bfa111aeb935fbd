"""Several translators as one."""

import functools
import json
import re
import shutil

import numpy as np
import pytest
from keras import ops
from support import seq2seq_models
from support.models import numpy
from support.tiers import nightly_unless

import zoo
from export.saved_model import export_saved_model
from training.evaluate import main
from training.evaluation.evaluate import evaluate
from zoo.decoding_options import TranslationOptions
from zoo.errors import InputError
from zoo.inference.ensemble import Ensemble
from zoo.inference.translator import Scorer, Translator
from zoo.vocabulary import PAD
from zoo.workdir import WorkDir

PAIRS = {
    "the same": ("transformer_tiny", "transformer_tiny"),
    "other heads": ("transformer_tiny", "rnnsearch"),
    "one without attention": ("luong_general", "rnn_encdec"),
}


@functools.cache
def member(name, seed):
    return seq2seq_models.create(name, without_shared(name), seed=seed)


def members(names):
    return [member(name, seed) for seed, name in enumerate(names)]


def without_shared(name):
    """Options under which both sides have a vocabulary of their own, so that all members read the same one."""
    options = dict(seq2seq_models.SMALL[name][0])
    return {**options, "tied_embeddings": "none"} if options.get("tied_embeddings") == "all" else options


def mean_log_prob(logits):
    log_probs = np.stack([own - np.logaddexp.reduce(own, axis=-1, keepdims=True) for own in logits])
    return np.logaddexp.reduce(log_probs, axis=0) - np.log(len(logits))


@pytest.mark.parametrize("names", nightly_unless(lambda names: names != PAIRS["the same"], PAIRS.values()))
def test_logits_are_those_of_the_mean_probability(names):
    models, (source, target) = members(names), seq2seq_models.batch()
    target = target[:, :3]
    of_members = [seq2seq_models.logits(model, source, target) for model in models]
    expected, ensemble = mean_log_prob(of_members), Ensemble(models)
    np.testing.assert_allclose(seq2seq_models.logits(ensemble, source, target), expected, atol=1e-5)
    real = target != PAD
    np.testing.assert_allclose(seq2seq_models.steps(ensemble, source, target)[real], expected[real], atol=1e-5)
    one = seq2seq_models.logits(Ensemble(models[:1]), source, target)
    np.testing.assert_allclose(one, mean_log_prob(of_members[:1]), atol=1e-5)


@pytest.mark.parametrize("names", nightly_unless(lambda names: names == PAIRS["other heads"], PAIRS.values()))
def test_beams_have_the_probability_that_the_ensemble_gives_them(names):
    source, _ = seq2seq_models.batch()
    ensemble = Ensemble(members(names))
    found = Translator(ensemble, TranslationOptions(beam_size=3, max_length=3))({"source": source})
    places = source.repeat(3, axis=0), ops.reshape(found["ids"], (-1, 3))
    scores = numpy(Scorer(ensemble)(dict(zip(("source", "target"), places, strict=True))))
    np.testing.assert_allclose(numpy(found["log_prob"]).ravel(), scores, atol=1e-4)


@pytest.mark.nightly
def test_attention_stands_side_by_side():
    source, target = seq2seq_models.batch()
    models = [member("transformer_tiny", 0)] * 2
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
    memory = other.encode(source)
    _, found, _ = other.decode_step(target[:, 0], other.initial_state(memory, 3), memory, return_attention_scores=True)
    np.testing.assert_allclose(numpy(found), joined[:, :, :, 0], atol=1e-6)
    assert not Ensemble(members(PAIRS["one without attention"])).attends


@pytest.fixture(scope="module")
def two(text_workdir, tmp_path_factory):
    """A work directory, and another one of other weights with the same tokenizers."""
    other = WorkDir(tmp_path_factory.mktemp("runs") / "other")
    WorkDir(text_workdir).copy_to(other)
    model = zoo.load(text_workdir).model
    chance = np.random.default_rng(1)
    for weight in model.trainable_variables:
        weight.assign(weight + chance.normal(0, 0.05, weight.shape))
    with other.replacing(other.model) as path:
        model.save(path)
    return [text_workdir, other.path]


@pytest.mark.nightly
def test_a_list_of_work_directories_is_an_ensemble(two):
    ensemble = zoo.load(two)
    assert [member.path for member in ensemble.members] == two
    assert ensemble.model.members == [member.model for member in ensemble.members]
    one, other = (np.array(member.model.weights[0]) for member in ensemble.members)
    assert np.abs(one - other).max() > 1e-3
    with pytest.raises(InputError, match="transformer_tiny.*'between'"):
        ensemble.attention(["the old horse sleeps ."], kind="between")


def test_what_cannot_be_an_ensemble(two, dates_workdir, labelled_workdir):
    with pytest.raises(InputError, match="at least one"):
        zoo.load([])
    with pytest.raises(InputError, match=re.escape(str(dates_workdir))):
        zoo.load([two[0], dates_workdir])
    with pytest.raises(InputError, match=f"{re.escape(str(labelled_workdir))}.*classifier"):
        zoo.load([two[0], labelled_workdir])
    with pytest.raises(InputError, match="twice"):
        zoo.load([two[0], two[0]])
    for one in (two[1], str(two[1])):
        with pytest.raises(InputError, match="list of work directories"):
            evaluate(two[0], split="val", ensemble=one)
        with pytest.raises(InputError, match="list of work directories"):
            export_saved_model(two[0], "unused", ensemble=one)


@pytest.mark.nightly
def test_an_evaluation_names_its_ensemble(two, tmp_path, capsys):
    first = shutil.copytree(two[0], tmp_path / "first")
    found = {}
    for more in ([], ["--ensemble", str(two[1])]):
        main([str(first), "--split", "val", *more])
        found[len(more)] = json.loads(capsys.readouterr().out)
    assert found[2]["ensemble"] == str(two[1]) and "ensemble" not in found[0]
    assert found[2]["cross_entropy"] != found[0]["cross_entropy"]
    assert len(list((first / "evaluation").glob("val_beam_1*ensemble_*.json"))) == 1
    lines = WorkDir(first).model_card.read_text().splitlines()
    alone, together = (
        [line for line in lines if "`val` of" in line and "beam_size 1" in line and ("ensemble" in line) is wanted]
        for wanted in (False, True)
    )
    assert len(alone) == len(together) == 1 and f"ensemble {two[1]}" in together[0]


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{}, {"weights": "int8", "beam_size": 3, "dynamic_batching": True, "xla": True}])
def test_an_export_of_an_ensemble(two, tmp_path, options):
    """The one with all options is loaded without this project, and asked all its signatures: `check`."""
    folder = export_saved_model(two[0], tmp_path, check=bool(options), ensemble=[two[1]], **options)
    record = json.loads((folder / "assets.extra" / "attention_zoo.json").read_text())
    assert [member["name"] for member in record["ensemble"]] == [path.name for path in two]
    card = (folder / "assets.extra" / "MODEL_CARD.md").read_text()
    assert f"- An ensemble of 2: {two[0].name}, other; the card above describes the first\n" in card
    assert ("weights" in options) is ("not measured: run `python -m training.evaluate DIR --weights int8" in card)
    assert ("weights" in options) is (f" --ensemble {two[1]}`" in card)
