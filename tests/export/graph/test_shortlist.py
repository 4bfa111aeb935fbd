"""Exports that translate with few target tokens."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, ask, texts_of
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


def graph_of(run, **options):
    return model_graph(run, Seq2SeqExportOptions(**options))


def answers(graph, texts=TEXTS):
    outputs = graph.answer(tf.constant(texts, tf.string))
    return texts_of(outputs["text"].numpy()), outputs["log_prob"].numpy()


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{}, {"weights": "int8"}, {"beam_size": 2}], ids=str)
def test_with_few_tokens(run, options):
    """Answers are those of Python, and a batch has the tokens of all its texts."""
    graph, search = graph_of(run, **options, shortlist=SIZE), {"beam_size": options.get("beam_size", 1)}
    found, log_probs = answers(graph)
    assert found != run.translate(TEXTS, **search), "the shortlist makes a difference"
    if "weights" not in options:
        expected = [best for best, *_ in run.nbest(TEXTS, **search, shortlist=SIZE)]
        assert found == [answer.text for answer in expected]
        np.testing.assert_allclose(log_probs, [answer.log_prob for answer in expected], rtol=1e-4)
    assert len(answers(graph, TEXTS[:1])[0]) == 1 and answers(graph, [])[0] == []


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{}, {"weights": "int8"}], ids=str)
def test_with_all_tokens(run, options):
    """Answers are the same, and so are scores, with few tokens too; without a shortlist nothing is stored."""
    whole, graph = graph_of(run, **options), graph_of(run, **options, shortlist=1000)
    (expected, log_probs), (found, same_log_probs) = answers(whole), answers(graph)
    assert found == expected
    np.testing.assert_allclose(same_log_probs, log_probs, rtol=1e-4)
    assert len(graph.weights) == len(whole.weights) + 2
    pair = graph.read(tf.constant(TEXTS[:3])), tf.constant([[5, 6, 2], [7, 2, 0], [58, 8, 2]])
    np.testing.assert_array_equal(graph_of(run, **options, shortlist=SIZE).logits(*pair), whole.logits(*pair))


def test_what_does_not_go_together(run, workdir, text_run, tmp_path):
    with pytest.raises(InputError, match="--shortlist.*--xla"):
        Export.resolve(workdir, tmp_path, shortlist=SIZE, xla=True)
    with pytest.raises(InputError, match="`prefixes`.*shortlist=24"):
        run.translate(["x"], prefixes=["y"], shortlist=SIZE)
    with pytest.raises(InputError, match="`shortlist`.* 10 .*beam_size=5"):
        graph_of(run, shortlist=9)  # nbest
    with pytest.raises(InputError, match=f"{FILE}.*training.shortlist"):
        graph_of(text_run, shortlist=SIZE)


@pytest.mark.nightly
def test_it_is_learned_measured_and_exported(text_workdir, tmp_path, capsys):
    """The commands, one after the other; the export is loaded as the stock server loads it."""
    workdir = shutil.copytree(text_workdir, tmp_path / "run", ignore=shutil.ignore_patterns("tb", "checkpoints"))
    asked = ["--shortlist", str(SIZE)]
    assert run_quietly(shortlist.main, workdir, *asked, "--frequent", "5", "--translations", "7") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["shortlist"] == SIZE and result["split"] == "val" and 0 <= result["outside"] < 0.5
    assert {"bleu", "bleu_of_all", "chrf", "chrf_of_all"} <= result.keys()
    measured = f"{100 * result['outside']:.2f} % of the tokens outside, bleu {result['bleu_of_all']:.4f} → "
    options = ["--beam_size", "1", "--dynamic_batching"]
    assert run_quietly(saved_model.main, workdir, "--output", tmp_path / "exported", *asked, *options) == 0
    output = capsys.readouterr()
    assert measured in output.err and f"each batch is translated with {SIZE} of" in output.err
    path = tmp_path / "exported" / "1"
    assert measured in (path / "assets.extra" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert read_options(path).shortlist == SIZE
    expected = load_run(workdir).translate(TEXTS, shortlist=SIZE)
    assert texts_of(ask(LoadedModel(path, 1), text=TEXTS)["text"]) == expected
    options = ["--beam_size", "3", "--signatures", "none"]
    assert run_quietly(saved_model.main, workdir, "--output", tmp_path / "exported", *asked, *options) == 0
    assert "not measured: run `python -m training.shortlist" in capsys.readouterr().err
