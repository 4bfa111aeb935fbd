"""What an exported version says of itself."""

from types import SimpleNamespace

import pytest

from export.graph.provenance import read_options, write_provenance
from export.options import Seq2SeqExportOptions
from training.loop.model_card import note_weights
from zoo.registry import get_spec
from zoo.workdir import WorkDir

MEASURED = {"split": "test", "weights": "int8", "beam_size": 5, "bleu": 40.5}


@pytest.fixture
def written(tmp_path):
    """Returns a function that writes the facts of a version and returns its model card."""

    def write(card, measured=None, **options):
        config = {"model": {"name": "rnnsearch"}, "data": {"spec": "dates"}}
        run = SimpleNamespace(path=tmp_path, spec=get_spec("rnnsearch"), config=config)
        run.members = [run]
        if card:
            (tmp_path / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        if measured:
            note_weights(WorkDir(tmp_path), "dates", measured, {"bleu": 41.0})
        (tmp_path / "1").mkdir()
        write_provenance(tmp_path / "1", run, Seq2SeqExportOptions(**options))
        assert read_options(tmp_path / "1") == Seq2SeqExportOptions(**options)
        return (tmp_path / "1" / "assets.extra" / "MODEL_CARD.md").read_text(encoding="utf-8")

    return write


def test_the_card_names_the_weights_as_they_are(written):
    card = written("# rnnsearch on dates\n", weights="float32")
    assert card == "# rnnsearch on dates\n\n## This version\n\n- Weights: float32, as the model has them\n"


def test_the_card_tells_what_smaller_weights_change(written):
    version = written("# rnnsearch on dates\n", MEASURED, weights="int8").partition("## This version")[2]
    assert "- Weights: int8;" in version
    assert "- What that changes: `test` of `dates`, beam_size 5: bleu 41.0000 → 40.5000 (-0.5000)\n" in version


def test_the_card_tells_how_to_measure_it(written):
    version = written("# rnnsearch on dates\n", MEASURED, weights="bfloat16", beam_size=4).partition("## This version")[
        2
    ]
    assert "not measured: run `python -m training.evaluate DIR --weights bfloat16 --beam_size 4`" in version
    assert "40.5" not in version


def test_the_card_of_one_model_leaves_out_what_an_ensemble_loses(written):
    version = written("# rnnsearch on dates\n", {**MEASURED, "ensemble": "runs/other"}, weights="int8")
    assert "not measured: run" in version.partition("## This version")[2]


def test_a_work_directory_without_a_card(written):
    assert written("", weights="int8").startswith("# rnnsearch\n\n## This version\n\n- Weights: int8;")
