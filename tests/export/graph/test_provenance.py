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
def written(tmp_path_factory):
    """Returns a function that writes the facts of a version and returns its model card."""

    def write(card, measured=None, **options):
        tmp_path = tmp_path_factory.mktemp("written")
        config = {"model": {"name": "rnnsearch"}, "data": {"spec": "dates"}}
        run = SimpleNamespace(path=tmp_path, spec=get_spec("rnnsearch"), config=config, tokenizer_files=dict)
        run.members, run.draft = [run], None
        if card:
            (tmp_path / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        if measured:
            note_weights(WorkDir(tmp_path), "dates", measured, {"bleu": 41.0})
        (tmp_path / "1").mkdir()
        write_provenance(tmp_path / "1", run, Seq2SeqExportOptions(**options))
        assert read_options(tmp_path / "1") == Seq2SeqExportOptions(**options)
        return (tmp_path / "1" / "assets.extra" / "MODEL_CARD.md").read_text(encoding="utf-8")

    return write


def test_the_card_names_the_weights(written):
    card = "# rnnsearch on dates\n"
    assert written(card, weights="float32").startswith(f"{card}\n## This version\n\n- Weights: float32")
    assert written("", weights="int8").startswith("# rnnsearch\n\n## This version\n\n- Weights: int8;")
    version = written(card, MEASURED, weights="int8").partition("## This version")[2]
    assert "- Weights: int8;" in version and "`test` of `dates`, beam_size 5: bleu 41.0000 → 40.5000" in version
    version = written(card, MEASURED, weights="bfloat16", beam_size=4).partition("## This version")[2]
    assert "training.evaluate DIR --weights bfloat16 --beam_size 4" in version and "40.5" not in version
    # What an ensemble loses is left out where it is one model.
    version = written(card, {**MEASURED, "ensemble": "runs/other"}, weights="int8").partition("## This version")[2]
    assert "training.evaluate" in version and "40.5" not in version
