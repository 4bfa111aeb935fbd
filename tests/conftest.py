"""Tiny trained work directories and their exports, shared by the tests of training, zoo and export.

They know little, but what they answer depends on the text. Two translate: one is recurrent, reads characters and was
trained in bfloat16; the other is a Transformer with subwords. One classifies words, one goes on with characters.
Nothing may write into them: copy first.
"""

from pathlib import Path

import pytest
from tiny import CLASSIFIER, LANGUAGE_MODEL, RECURRENT, TRANSFORMER, train, write_labelled, write_lines, write_text


@pytest.fixture(scope="session")
def text_spec(tmp_path_factory) -> str:
    """The SPEC of a small parallel text."""
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def text_workdir(text_spec, tmp_path_factory) -> Path:
    """The work directory of a Transformer with subwords, trained in float32."""
    workdir = tmp_path_factory.mktemp("runs") / "text"
    assert train("transformer_tiny", text_spec, workdir, "--set", *TRANSFORMER) == 0
    return workdir


@pytest.fixture(scope="session")
def dates_workdir(tmp_path_factory) -> Path:
    """The work directory of a recurrent model with characters, trained in bfloat16."""
    workdir = tmp_path_factory.mktemp("runs") / "dates"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.data.dates.SIZES", {"train": 4000, "val": 200, "test": 200})
        assert train("rnnsearch", "dates", workdir, "--set", *RECURRENT) == 0
    return workdir


@pytest.fixture(scope="session")
def labelled_spec(tmp_path_factory) -> str:
    """The SPEC of small labelled text."""
    return write_labelled(tmp_path_factory.mktemp("labelled"))


@pytest.fixture(scope="session")
def labelled_workdir(labelled_spec, tmp_path_factory) -> Path:
    """The work directory of a self-attention classifier with words."""
    workdir = tmp_path_factory.mktemp("runs") / "labelled"
    settings = [*CLASSIFIER, "data.tokenizer=words"]
    assert train("self_attention_classifier", labelled_spec, workdir, "--set", *settings) == 0
    return workdir


@pytest.fixture(scope="session")
def lines_spec(tmp_path_factory) -> str:
    """The SPEC of a small running text."""
    return write_lines(tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="session")
def lines_workdir(lines_spec, tmp_path_factory) -> Path:
    """The work directory of a causal Transformer with characters."""
    workdir = tmp_path_factory.mktemp("runs") / "lines"
    settings = [*LANGUAGE_MODEL, "data.tokenizer=chars"]
    assert train("causal_lm_tiny", lines_spec, workdir, "--set", *settings) == 0
    return workdir


@pytest.fixture(scope="session")
def labelled_run(labelled_workdir):
    """The classifier, loaded."""
    import zoo

    return zoo.load(labelled_workdir)


@pytest.fixture(scope="session")
def lines_run(lines_workdir):
    """The language model, loaded."""
    import zoo

    return zoo.load(lines_workdir)


@pytest.fixture(scope="session")
def text_run(text_workdir):
    """The Transformer, loaded; shared because each decoding is compiled once."""
    import zoo

    return zoo.load(text_workdir)


@pytest.fixture(scope="session")
def dates_run(dates_workdir):
    """The recurrent model, loaded."""
    import zoo

    return zoo.load(dates_workdir)


@pytest.fixture(scope="session")
def text_export(text_workdir, tmp_path_factory) -> Path:
    """The base path of the exported Transformer, which has version 1."""
    from export.saved_model import export_saved_model

    return export_saved_model(text_workdir, tmp_path_factory.mktemp("exports") / "text").parent


@pytest.fixture(scope="session")
def dates_export(dates_workdir, tmp_path_factory) -> Path:
    """The base path of the exported recurrent model, which has version 1."""
    from export.saved_model import export_saved_model

    return export_saved_model(dates_workdir, tmp_path_factory.mktemp("exports") / "dates").parent


@pytest.fixture(scope="session")
def labelled_export(labelled_workdir, tmp_path_factory) -> Path:
    """The base path of the exported classifier, which has version 1."""
    from export.saved_model import export_saved_model

    return export_saved_model(labelled_workdir, tmp_path_factory.mktemp("exports") / "labelled").parent


@pytest.fixture(scope="session")
def lines_export(lines_workdir, tmp_path_factory) -> Path:
    """The base path of the exported language model, which has version 1."""
    from export.saved_model import export_saved_model

    return export_saved_model(lines_workdir, tmp_path_factory.mktemp("exports") / "lines").parent
