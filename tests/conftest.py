"""Two tiny trained work directories and their exports, shared by the tests of training, zoo and export.

They know little, but what they answer depends on the text. One is recurrent, reads characters and was trained in
bfloat16; the other is a Transformer with subwords. Nothing may write into them: copy first.
"""

from pathlib import Path

import pytest
from tiny import RECURRENT, TRANSFORMER, train, write_text


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
