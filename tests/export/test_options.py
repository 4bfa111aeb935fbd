"""The options of an export: one declaration for flags, checks and the README's table."""

from pathlib import Path

import pytest
from support.tiny_runs import run_quietly

from export import options, saved_model
from export.options import TASK_OPTIONS, Export, Seq2SeqExportOptions, options_table
from zoo.errors import InputError
from zoo.stored_weights import KINDS


def test_the_readme_shows_the_table():
    assert options_table() in (Path(options.__file__).with_name("README.md")).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rerank": "mbr"}, "--rerank mbr chooses among the translations of a beam.* Received: beam_size=1."),
        ({"rerank": "mbr", "beam_size": 4, "xla": True}, "--rerank and --xla do not go together"),
        ({"rerank": "bleu", "beam_size": 4}, "`rerank` must be none or mbr"),
    ],
)
def test_reranking_that_cannot_be(options, message):
    with pytest.raises(InputError, match=message):
        Seq2SeqExportOptions(**options)


def test_the_help_names_every_option(capsys):
    with pytest.raises(SystemExit):
        saved_model.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for declared in (task.declared() for task in TASK_OPTIONS.values()):
        for name, option in declared.items():
            assert f"--{name}" in shown and option.meaning.replace("`", "") in shown.replace("`", "")


def test_weights_are_stored_in_all_kinds():
    assert Seq2SeqExportOptions.declared()["weights"].choices == KINDS


def test_an_export_is_resolved_once(text_workdir, tmp_path):
    """Texts of a command line and values of Python come to the same."""
    texts = Export.resolve(text_workdir, tmp_path, beam_size="3", length_penalty="0.5", weights=None)
    values = Export.resolve(text_workdir, tmp_path, beam_size=3, length_penalty=0.5)
    assert texts == values and values.options == Seq2SeqExportOptions(beam_size=3, length_penalty=0.5)


def test_a_preset_is_a_work_directory(tmp_path):
    assert Export.resolve("preset:sums_causal_lm_tiny", tmp_path).options == TASK_OPTIONS["language_model"]()
    with pytest.raises(InputError, match="Unknown preset 'sums'"):
        Export.resolve("preset:sums", tmp_path)


def test_options_of_other_tasks_are_refused(labelled_workdir, tmp_path, capsys):
    status = run_quietly(saved_model.main, labelled_workdir, "--output", tmp_path / "x", "--beam_size", "2")
    assert status == 2
    assert "--beam_size is not for classifier models such as self_attention_classifier." in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_weights_of_another_kind_are_refused(text_workdir, tmp_path, capsys):
    assert run_quietly(saved_model.main, text_workdir, "--output", tmp_path / "x", "--weights", "int4") == 2
    assert "`weights` must be float32, bfloat16 or int8. Received: weights='int4'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num_batch_threads", 3], "--num_batch_threads is of no use without --dynamic_batching."),
        (
            ["--dynamic_batching", "--num_batch_threads", 0],
            "`num_batch_threads` must be an integer from 1 to 1024. Received: num_batch_threads=0.",
        ),
    ],
)
def test_batch_threads_that_cannot_be(text_workdir, tmp_path, capsys, flags, message):
    assert run_quietly(saved_model.main, text_workdir, "--output", tmp_path / "x", *flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
