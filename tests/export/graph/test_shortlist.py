"""Exports that translate with few target symbols."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, ask
from support.tiny_runs import run_quietly

from export import saved_model
from export.graph.provenance import read_options
from export.graph.served_model import model_graph
from export.graph.signatures import TEXTS
from export.options import Export, Seq2SeqExportOptions
from training import shortlist
from zoo.errors import InputError
from zoo.inference import load_run
from zoo.inference.shortlist import FILE, Shortlist
from zoo.workdir import WorkDir

SIZE = 24


@pytest.fixture(scope="module")
def workdir(text_workdir, tmp_path_factory):
    """A copy with a shortlist that has little to do with the texts."""
    target = tmp_path_factory.mktemp("listed") / "run"
    shutil.copytree(text_workdir, target, ignore=shutil.ignore_patterns("tb", "checkpoints"))
    sizes = load_run(target).config["model"]
    source, total = sizes["source_vocab_size"], sizes["target_vocab_size"]
    chance = np.random.default_rng(0)
    table = chance.integers(0, total, (source, 2)).astype("int32")
    Shortlist(table, np.r_[:4, 4 + chance.permutation(total - 4)].astype("int32"), 9).save(WorkDir(target))
    return target


@pytest.fixture(scope="module")
def run(workdir):
    return load_run(workdir)


def answers(run, texts=TEXTS, **options):
    outputs = model_graph(run, Seq2SeqExportOptions(**options)).answer(tf.constant(texts, tf.string))
    return [text.decode() for text in outputs["text"].numpy()], outputs["log_prob"].numpy()


OTHER = [pytest.param(options, marks=pytest.mark.nightly) for options in ({"weights": "int8"}, {"beam_size": 2})]


@pytest.mark.parametrize("options", [{}, *OTHER], ids=str)
def test_with_all_symbols_answers_are_the_same(run, options):
    expected, log_probs = answers(run, **options)
    found, same_log_probs = answers(run, **options, shortlist=1000)
    assert found == expected
    np.testing.assert_allclose(same_log_probs, log_probs, rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_answers_are_those_of_python(run, beam_size):
    found, log_probs = answers(run, beam_size=beam_size, shortlist=SIZE)
    expected = [best[0] for best in run.nbest(TEXTS, beam_size=beam_size, shortlist=SIZE)]
    assert found == [answer.text for answer in expected]
    assert found != answers(run, beam_size=beam_size)[0], "the shortlist makes a difference"
    np.testing.assert_allclose(log_probs, [answer.log_prob for answer in expected], rtol=1e-4)


def test_a_batch_has_the_symbols_of_all_its_texts(run):
    alone, together = answers(run, TEXTS[:1], shortlist=SIZE)[0], answers(run, TEXTS, shortlist=SIZE)[0]
    assert len(alone) == 1 and len(together) == len(TEXTS)
    assert answers(run, [], shortlist=SIZE)[0] == []


def test_scores_are_those_of_all_symbols(run):
    graph = model_graph(run, Seq2SeqExportOptions(shortlist=SIZE))
    source, target = graph.read(tf.constant(TEXTS[:3])), tf.constant([[5, 6, 2], [7, 2, 0], [58, 8, 2]])
    expected = model_graph(run, Seq2SeqExportOptions()).scorer({"source": source, "target": target})
    np.testing.assert_array_equal(graph.scorer({"source": source, "target": target}), expected)


def test_without_it_nothing_is_stored(run):
    tables = len(model_graph(run, Seq2SeqExportOptions(shortlist=SIZE)).weights)
    assert tables == len(model_graph(run, Seq2SeqExportOptions()).weights) + 2


def test_what_does_not_go_together(run, workdir, text_workdir, tmp_path):
    with pytest.raises(InputError, match="--shortlist and --xla do not go together"):
        Export.resolve(workdir, tmp_path, shortlist=SIZE, xla=True)
    with pytest.raises(InputError, match="A shortlist may lack what `prefixes` have. Received: shortlist=24."):
        run.translate(["x"], prefixes=["y"], shortlist=SIZE)
    with pytest.raises(InputError, match="`shortlist` must be 0 or at least 10 with beam_size=5"):
        model_graph(run, Seq2SeqExportOptions(shortlist=9))  # nbest
    with pytest.raises(InputError, match=f"has no {FILE}, which `python -m training.shortlist"):
        model_graph(load_run(text_workdir), Seq2SeqExportOptions(shortlist=SIZE))


@pytest.mark.nightly
def test_it_is_learned_measured_and_exported(text_workdir, tmp_path, capsys):
    """The commands, one after the other; the export is loaded as the stock server loads it."""
    workdir = shutil.copytree(text_workdir, tmp_path / "run", ignore=shutil.ignore_patterns("tb", "checkpoints"))
    asked = ["--shortlist", str(SIZE)]
    assert run_quietly(shortlist.main, workdir, *asked, "--frequent", "5", "--translations", "7") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["shortlist"] == SIZE and result["split"] == "val" and 0 <= result["outside"] < 0.5
    assert {"bleu", "bleu_of_all", "chrf", "chrf_of_all"} <= result.keys()
    measured = f"{100 * result['outside']:.2f} % of the symbols outside, bleu {result['bleu_of_all']:.4f} → "
    options = ["--beam_size", "1", "--dynamic_batching", "--check"]
    assert run_quietly(saved_model.main, workdir, "--output", tmp_path / "exported", *asked, *options) == 0
    output = capsys.readouterr()
    assert measured in output.err and f"each batch is translated with {SIZE} of" in output.err
    path = tmp_path / "exported" / "1"
    assert measured in (path / "assets.extra" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert read_options(path).shortlist == SIZE
    expected = load_run(workdir).translate(TEXTS, shortlist=SIZE)
    assert [text.decode() for text in ask(LoadedModel(path, 1), text=TEXTS)["text"]] == expected
    options = ["--beam_size", "3", "--check"]
    assert run_quietly(saved_model.main, workdir, "--output", tmp_path / "exported", *asked, *options) == 0
    assert "what that loses is not measured: run `python -m training.shortlist" in capsys.readouterr().err
