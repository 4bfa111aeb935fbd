"""The options of an export: one declaration for flags, checks and the README's table."""

import os
from pathlib import Path

import pytest
from support.tiny_runs import run_quietly

from export import options, saved_model
from export.options import TASK_OPTIONS, Export, Seq2SeqExportOptions, options_table
from zoo.errors import InputError
from zoo.stored_weights import KINDS


def test_the_readme_shows_the_table():
    assert options_table() in (Path(options.__file__).with_name("README.md")).read_text(encoding="utf-8")


def test_reranking_that_cannot_be():
    for asked, words in (
        ({"rerank": "mbr"}, "--rerank mbr.*beam_size=1"),
        ({"rerank": "mbr", "beam_size": 4, "xla": True}, "--rerank.*--xla"),
        ({"rerank": "bleu", "beam_size": 4}, "`rerank`.*none or mbr"),
    ):
        with pytest.raises(InputError, match=words):
            Seq2SeqExportOptions(**asked)


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


def test_flags_that_are_refused(labelled_workdir, text_workdir, tmp_path, capsys):
    """Of another task, out of range, or of no use; nothing is made then."""
    (blank := tmp_path / "blank.txt").write_text("\n \n")
    for workdir, flags, words in (
        (labelled_workdir, ["--beam_size", 2], ["--beam_size", "classifier", "self_attention_classifier"]),
        (text_workdir, ["--weights", "int4"], ["`weights`", "float32, bfloat16 or int8", "weights='int4'"]),
        (text_workdir, ["--num_batch_threads", 3], ["--num_batch_threads", "--dynamic_batching"]),
        (
            text_workdir,
            ["--dynamic_batching", "--num_batch_threads", 0],
            ["`num_batch_threads`", "1 to 1024", "num_batch_threads=0"],
        ),
        (labelled_workdir, ["--draft", text_workdir], ["--draft", "classifier"]),
        (text_workdir, ["--draft", text_workdir, "--draft_length", 0], ["--draft", "draft_length=0"]),
        (text_workdir, ["--draft", text_workdir, "--beam_size", 2], ["--draft", "greedy", "beam_size=2"]),
        (text_workdir, ["--draft_length", 3, "--beam_size", 2], ["`draft_length`", "greedy", "beam_size=2"]),
        (text_workdir, ["--draft", tmp_path / "none"], ["none"]),
        (text_workdir, ["--draft_text", __file__], ["--draft_text", "--draft_length"]),
        (text_workdir, ["--draft_length", 3, "--draft_text", tmp_path / "none"], ["--draft_text", "none"]),
        (text_workdir, ["--draft_length", 3, "--draft_text", os.devnull], ["--draft_text", os.devnull]),
        (text_workdir, ["--draft_length", 3, "--draft_text", blank], ["--draft_text", "blank.txt", "no text"]),
    ):
        assert run_quietly(saved_model.main, workdir, "--output", tmp_path / "x", *flags) == 2
        error = capsys.readouterr().err
        assert all(word in error for word in words) and error.count("\n") == 1, error
    assert not (tmp_path / "x").exists()
