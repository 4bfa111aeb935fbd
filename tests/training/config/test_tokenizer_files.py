"""The user's own tokenizers, from the setting to the export: `data.tokenizer=file:PATH`."""

import io
import json
import shutil

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from support import checkpoints
from support.conversions import write
from support.tiny_runs import TRANSFORMER, run_quietly, train

import zoo
from training.config.options import DataConfig
from training.config.resolve import resolve
from training.config.settings import read_settings
from training.config.tokenizer_files import checksums, read_tokenizers, tokenizer_files
from training.config.vocabularies import suggested, with_files
from zoo.checkpoints.families.ctranslate2_layers import order_of
from zoo.errors import InputError

SENTENCES = ["a red horse sees .", "großartig… 漢字  😀", "  My BOOK"]
LLAMA = f"file:{checkpoints.FIXTURES / 'llama/tokenizer.model'}"
BERT = f"file:{checkpoints.FIXTURES / 'minilm/tokenizer.json'}"
UNCHECKED = {"tokenizer_sha256": "", "vocab_size": None}
SETTINGS = [setting for setting in TRANSFORMER if not setting.startswith("data.")]


def write_sentencepiece(path, **options):
    """Trains a SentencePiece model by itself and returns it."""
    model, lines = io.BytesIO(), ["a red horse sees my old book .", "the girl sleeps and the house burns ."] * 9
    options |= {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def last_line(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def own(text_spec, tmp_path_factory):
    """A file, its tokenizer, and the work directory of a run with it; the file is no longer there."""
    folder = tmp_path_factory.mktemp("own")
    path = folder / "of mine" / "a, b.model"
    theirs = write_sentencepiece(path)
    words = ("--set", *SETTINGS, f"data.tokenizer=file:{path}", "training.max_steps=20")
    assert train("transformer_tiny", text_spec, folder / "run", *words) == 0
    shutil.rmtree(path.parent)
    return path, theirs, folder / "run"


def test_the_tokenizer_of_another_work_directory(text_run):
    settings = {"tokenizer": f"file:{text_run.path / 'tokenizers' / 'source.json'}", **UNCHECKED}
    read = read_tokenizers(settings, "seq2seq")
    assert read["source"].identity() == read["target"].identity() == text_run.tokenizers.source.identity()


def test_all_files_of_another_work_directory_count(text_run, tmp_path):
    folder = shutil.copytree(text_run.path / "tokenizers", tmp_path / "tokenizers")
    setting = f"file:{folder / 'source.json'}"
    before = checksums(setting)
    assert before == text_run.tokenizers.source.identity()
    write_sentencepiece(folder / "source.model", pad_id=0, bos_id=1, eos_id=2, unk_id=3)
    assert checksums(setting) != before
    (folder / "source.json").rename(folder / "source.txt")
    with pytest.raises(InputError, match="source.txt"):
        read_tokenizers({"tokenizer": f"file:{folder / 'source.txt'}", **UNCHECKED}, "seq2seq")


@pytest.mark.nightly
def test_the_work_directory_has_all_that_is_needed(own, tmp_path):
    path, theirs, run = own
    config = json.loads((run / "config.json").read_text())
    size = theirs.vocab_size() + 1  # it has no padding
    assert config["model"]["source_vocab_size"] == config["model"]["target_vocab_size"] == size
    assert (config["data"]["vocab_size"], config["data"]["shared_vocabulary"]) == (size, True)
    card = (run / "MODEL_CARD.md").read_text()
    assert f"'data.tokenizer=file:{path}'" in card and config["data"]["tokenizer_sha256"] in card
    loaded = zoo.load(run)
    rows = loaded.tokenizers.source.encode(SENTENCES)
    assert [[loaded.tokenizers.source.model_ids[i] for i in row] for row in rows] == theirs.encode(SENTENCES)

    from export.saved_model import main

    assert run_quietly(main, run, "--output", tmp_path / "base", "--signatures", "attention") == 0
    served = tf.saved_model.load(str(tmp_path / "base/1")).signatures["attention"](text=tf.constant(SENTENCES))
    pieces = [[piece.decode() for piece in row if piece] for row in served["source_tokens"].numpy()]
    expected = [[theirs.id_to_piece(i) for i in row] for row in theirs.encode(SENTENCES)]
    assert pieces == [[*row, "</s>"] for row in expected] and any("<unk>" in row for row in expected)
    folder = write(run, f"ctranslate2:{tmp_path}/out")
    _, again = checkpoints.imported(f"ctranslate2:{folder}", tmp_path / "again")
    assert again.source_ids(SENTENCES) == loaded.source_ids(SENTENCES)
    ids = checkpoints.padded(loaded.source_ids(SENTENCES))
    logits = [np.asarray(each.model({"source": ids, "target": ids})) for each in (again, loaded)]
    np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="the source"):
        order_of(read_tokenizers({**UNCHECKED, "tokenizer": LLAMA}, "language_model")["text"], "source")


@pytest.mark.nightly
def test_a_run_goes_on_without_the_file_and_is_repeated_with_the_same_one(own, text_spec, tmp_path, capsys):
    path, _, run = own
    shutil.copytree(run, tmp_path / "run")
    words = ("--resume", "--set", *SETTINGS, f"data.tokenizer=file:{path}", "training.max_steps=40")
    assert train("transformer_tiny", text_spec, tmp_path / "run", *words) == 0
    capsys.readouterr()
    file, again = run / "config.json", tmp_path / "again"
    assert train("transformer_tiny", text_spec, again, "--config", file) == 2
    assert "data.tokenizer" in (line := last_line(capsys)) and str(path) in line
    write_sentencepiece(path, normalization_rule_name="nfkc_cf")
    assert train("transformer_tiny", text_spec, again, "--config", file) == 2
    line, noted = last_line(capsys), json.loads(file.read_text())["data"]["tokenizer_sha256"]
    sums = (noted, checksums(f"file:{path}"))
    assert str(path) in line and all(each in line for each in sums) and not again.exists()
    # Where another tokenizer is asked for, what the configuration says of the file does not count.
    other = resolve("transformer_tiny", text_spec, ["data.tokenizer=chars"], read_settings(file)).data
    assert (other.tokenizer, other.tokenizer_sha256) == ("chars", "")


def test_which_texts_have_which_file():
    settings = {**UNCHECKED, "tokenizer": f"{LLAMA},{BERT}"}
    both = read_tokenizers(settings, "seq2seq")
    assert [both[side].kind for side in ("source", "target")] == ["reordered_subword", "wordpiece"]
    assert not both["target"].has_start
    (text,) = read_tokenizers({**settings, "tokenizer": BERT}, "classifier").values()
    assert text.has_start and not read_tokenizers({**settings, "tokenizer": BERT}, "language_model")["text"].has_start
    assert [str(path) for path in tokenizer_files("file:a,b c.model,file:d")] == ["a,b c.model", "d"]
    assert tokenizer_files("chars") == []
    settled = with_files(DataConfig(spec="x", tokenizer=LLAMA, vocab_size=None), "seq2seq")
    assert settled.tokenizer_sha256 == checksums(LLAMA) and settled.vocab_size == both["source"].vocab_size
    recipe = {"lowercase": True, "vocab_size": 8000, "max_length": 7}
    assert suggested(recipe, {"tokenizer": LLAMA}) == {"vocab_size": None, "max_length": 7}
    assert suggested(recipe, {}) == recipe


REFUSED = (
    ("file:", {}, ("`tokenizer`", "'file:'")),
    ("files:x", {}, ("`tokenizer`", "'files:x'")),
    ("file:nowhere", {}, ("data.tokenizer", "nowhere")),
    (f"{LLAMA},{LLAMA},{LLAMA}", {}, ("data.tokenizer", "3", LLAMA)),
    (LLAMA, {"vocab_size": 100}, ("data.tokenizer", LLAMA.removeprefix("file:"), "vocab_size=100")),
    (LLAMA, {"tokenizer_sha256": "abc"}, ("data.tokenizer", LLAMA.removeprefix("file:"), "tokenizer_sha256=abc")),
    (LLAMA, {"lowercase": True}, ("data.lowercase=True", LLAMA)),
    (LLAMA, {"normalization": "nfkc"}, ("data.normalization=nfkc", LLAMA)),
    (f"{LLAMA},{BERT}", {"shared_vocabulary": True}, ("data.shared_vocabulary", BERT)),
    ("words", {"tokenizer_sha256": "abc"}, ("data.tokenizer_sha256=abc", "words")),
)


def test_what_does_not_go_together(subtests):
    for tokenizer, others, words in REFUSED:
        with subtests.test(tokenizer, **others), pytest.raises(InputError) as raised:
            with_files(DataConfig(spec="x", **{"vocab_size": None, "tokenizer": tokenizer, **others}), "seq2seq")
        assert not [word for word in words if word not in str(raised.value)], str(raised.value)
    with pytest.raises(InputError, match=r"data\.tokenizer.*classifier"):
        read_tokenizers({**UNCHECKED, "tokenizer": f"{LLAMA},{BERT}"}, "classifier")
    # A recipe does not decide how a file reads text.
    assert not resolve("transformer_base", "text:data:en-de", [f"data.tokenizer={LLAMA}"]).data.lowercase
