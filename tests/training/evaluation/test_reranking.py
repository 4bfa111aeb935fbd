"""Minimum Bayes risk over a list of translations."""

import json
import math
import re
import shutil
from types import SimpleNamespace

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from training.evaluate import main
from training.evaluation.evaluate import evaluate
from training.evaluation.reranking import RERANKINGS, Reranked, consensus
from zoo.errors import InputError

TEXTS = ["A man rides a horse .", "A man is riding a horse .", "The man rides on a horse .", "Dogs run ."]
LOG_PROBS = [-2.0, -1.5, -1.9, -1.3]


def test_consensus():
    for reranking in RERANKINGS:
        metric = CHRF() if reranking == "mbr" else BLEU(effective_order=True)
        expected = []
        for text in TEXTS:
            utility = 0.0
            for other, log_prob in zip(TEXTS, LOG_PROBS, strict=True):
                share = math.exp(log_prob) / sum(map(math.exp, LOG_PROBS))
                utility += share * metric.sentence_score(text, [other]).score
            expected.append(utility)
        found = consensus(TEXTS, LOG_PROBS, reranking)
        assert found == expected.index(max(expected)) != LOG_PROBS.index(max(LOG_PROBS))
    with pytest.raises(InputError, match="'mrb'.*mbr"):
        consensus(TEXTS, LOG_PROBS, "mrb")


def test_one_probable_translation_stays_and_the_first_of_equals_is_taken():
    assert consensus(TEXTS, [-9.0, -9.0, -9.0, -0.1]) == 3
    assert consensus(["a", "b"], [-1.0, -1.0]) == 0
    assert consensus(["", ""], [-800.0, -900.0]) == 0
    assert consensus(["alone"], [-3.0]) == 0
    low = -math.inf  # what no model thinks possible
    assert consensus(TEXTS[:2], [low, low]) == 0 and consensus(TEXTS[:2], [low, -1.0]) == 1


def test_a_reranked_run():
    hypotheses = [SimpleNamespace(text=text, log_prob=value) for text, value in zip(TEXTS, LOG_PROBS, strict=True)]
    asked = {}

    def nbest(texts, **options):
        asked.update(options)
        return [hypotheses for _ in texts]

    answers = Reranked(SimpleNamespace(nbest=nbest), "mbr").translate(["x", "y"], beam_size=4)
    assert answers == [TEXTS[consensus(TEXTS, LOG_PROBS)]] * 2 and asked == {"beam_size": 4}


@pytest.fixture(scope="module")
def workdir(dates_workdir, tmp_path_factory):
    """A copy of a work directory, since evaluations write into it."""
    target = tmp_path_factory.mktemp("evaluated") / "run"
    return shutil.copytree(dates_workdir, target, ignore=shutil.ignore_patterns("tb", "checkpoints"))


class Model:
    """A translator of one text by a table of log probabilities, whose beam is what is probable, in order."""

    def __init__(self, log_probs, beam_size=2):
        self.log_probs, self.beam_size, self.scored = log_probs, beam_size, []

    def nbest(self, texts, **options):
        ranked = sorted(self.log_probs, key=self.log_probs.get, reverse=True)[: self.beam_size]
        return [[SimpleNamespace(text=text, log_prob=self.log_probs[text]) for text in ranked] for _ in texts]

    def score(self, sources, targets):
        self.scored += zip(sources, targets, strict=True)
        return [self.log_probs[target] for target in targets]


def chosen(monkeypatch, *arguments, **options):
    """The lists that a choice was made from, with log probabilities."""
    seen = []
    monkeypatch.setattr(
        "training.evaluation.reranking.consensus", lambda texts, values, *_: seen.append((texts, values)) or 0
    )
    Reranked(*arguments, **options).translate(["x"], beam_size=2)
    return seen


def test_other_models_add_their_beams_and_p_is_the_mean(monkeypatch):
    one, other = Model({"a": -1.0, "b": -2.0, "c": -3.0}), Model({"a": -4.0, "b": -2.0, "c": -1.0})
    ((texts, values),) = chosen(monkeypatch, one, "mbr", [other])
    assert texts == ["a", "b", "c"]
    means = [math.log((math.exp(one.log_probs[text]) + math.exp(other.log_probs[text])) / 2) for text in texts]
    assert values == pytest.approx(means)
    assert one.scored == other.scored == [("x", text) for text in texts]


def test_a_reverse_model_is_asked_for_the_source(monkeypatch):
    forth, back = Model({"a": -1.0, "b": -2.0}), Model({"x": -5.0})
    ((texts, values),) = chosen(monkeypatch, forth, "mbr", reverse=back, reverse_weight=0.25)
    assert texts == ["a", "b"] and back.scored == [("a", "x"), ("b", "x")]
    assert values == pytest.approx([0.75 * -1.0 + 0.25 * -5.0, 0.75 * -2.0 + 0.25 * -5.0])


@pytest.mark.nightly
def test_advisers_of_a_real_run(workdir, tmp_path, capsys):
    """The run itself as another changes nothing but that each text is a candidate once; files tell advisers apart."""
    arguments = [str(workdir), "--split", "val", "--beam_size", "3", "--rerank", "mbr"]
    names = set()
    for more in ([], ["--with", str(workdir)], ["--reverse", str(workdir)]):
        main([*arguments, *more])
        metrics = json.loads(capsys.readouterr().out)
        assert {"with", "reverse", "reverse_weight"} & set(metrics) == {
            (): set(),
            ("--with",): {"with"},
            ("--reverse",): {"reverse", "reverse_weight"},
        }[tuple(more[:1])]
        names |= {path.name for path in (workdir / "evaluation").glob("val_beam_3*rerank_mbr*.json")}
    assert len(names) == 3


def test_smaller_weights_are_those_of_all_models(workdir, monkeypatch):
    rounded = []
    monkeypatch.setattr(
        "training.evaluation.evaluate.round_weights", lambda model, kind: rounded.append((id(model), kind))
    )
    monkeypatch.setattr("training.evaluation.evaluate._likelihood", lambda *arguments: {"cross_entropy": 1.0})
    monkeypatch.setattr(Reranked, "translate", lambda self, texts, **options: list(texts))
    options = {"rerank": "mbr", "beam_size": 2, "others": [workdir], "reverse": workdir}
    evaluate(workdir, split="val", weights="int8", **options)
    assert len(set(rounded)) == 3 and {kind for _, kind in rounded} == {"int8"}


def test_a_shortlist_that_another_model_lacks_is_missed_before_anything_is_decoded(workdir, tmp_path, monkeypatch):
    other = shutil.copytree(workdir, tmp_path / "other")
    monkeypatch.setattr(Reranked, "translate", lambda *_, **__: pytest.fail("decoded"))
    with pytest.raises(InputError, match=f"{re.escape(str(other))} has no shortlist"):
        evaluate(workdir, split="val", rerank="mbr", beam_size=2, others=[other], shortlist=20)


MBR = ["--rerank", "mbr", "--beam_size", "2"]
WRONG = (
    (["--with", "DIR"], "--with DIR is for --rerank: add --rerank mbr"),
    (["--reverse", "DIR"], "--reverse DIR is for --rerank: add --rerank mbr"),
    ([*MBR, "--reverse_weight", "0.1"], "--reverse_weight requires --reverse"),
    ([*MBR, "--reverse", "DIR", "--reverse_weight", "nan"], "--reverse_weight.*Received: nan"),
    (
        [*MBR, "--with", "preset:senses_self_attention_classifier"],
        "senses_self_attention_classifier contains a cl",
    ),
    (["--rerank", "mbr"], "--rerank mbr .*beam_size=1"),
)


def test_advisers_that_cannot_advise(dates_workdir, subtests):
    """A call is checked as the command is."""
    where = str(dates_workdir)
    for options, message in WRONG:
        with subtests.test(" ".join(options)):
            with pytest.raises(InputError, match=message.replace("DIR", where)):
                main([where, *(option.replace("DIR", where) for option in options)])
    with pytest.raises(InputError, match="is for --rerank"):
        evaluate(dates_workdir, split="val", reverse=dates_workdir)
    with pytest.raises(InputError, match=f"list of work directories.* Received: {where!r}"):
        evaluate(dates_workdir, split="val", rerank="mbr", beam_size=2, others=where)
