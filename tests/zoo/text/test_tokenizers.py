"""Tokenizers: the Python half, the graph half, and their agreement on text that nobody expects."""

import io
import json
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from support.checkpoints import check_graph
from support.every import every

import zoo.text
from export.graph.tokenizers import tokenizer_graph
from zoo.errors import InputError
from zoo.inference.base_run import read_texts
from zoo.text import CharTokenizer, SubwordTokenizer, WordTokenizer, load_tokenizer, train_tokenizer
from zoo.vocabulary import END, PAD, START, UNKNOWN

_CORPUS = [
    "a man rides a brown horse along the beach",
    "two women ride two horses through the water",
    "ein Mann reitet auf einem braunen Pferd den Strand entlang",
    "zwei Frauen reiten auf zwei Pferden durch das Wasser",
    "שלום עולם, אוקטובר",
    "Κυριακή 3 Αυγούστου 2025",
    "2025年8月3日 ½ … ﬁ ",
    "tab\there\x07 and a\u200cjoiner",
] * 3

_TRICKY = [
    "",
    " ",
    "     ",
    "\t\r",
    "a man rides two horses",
    "  spaces   around  ",
    "emoji 😀 👩‍👩‍👧 🇩🇪",
    "שלום עולם",
    "\u202bשלום\u202c ride \u200eשם\u200f",
    "control \x01\x07\x1b\x7f\x85 characters",
    "\x00",
    "nul\x00inside\x00",
    "combining e\u0301 \u0301\u0308 ñ n\u0303",
    "\u00a0nb\u00a0sp\u2009thin\u202fnarrow",
    "\ufeffmark",
    "\ufffd and a\ufffdb",
    "line\u2028separator\u2029",
    "½ … ﬁ Ⅷ ㎏ ｗｉｄｅ",
    "<s> a man </s> <pad> <unk>",
    "▁the ▁ man⁇",
    "\U0010ffff\U000e0001\ue000",
    "x" * 20_011,
    "a horse " * 5_003,
    "... .... ..... banananana riderider",
    "EIN MANN RIDES Straße STRAẞE ÄÖÜ İSTANBUL IĞDIR ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ǅ Ⅷ Ⓐ",
]


def _strings(tensor) -> list:
    return np.frompyfunc(bytes.decode, 1, 1)(tensor).tolist()


def _assert_halves_agree(tokenizer, graph, texts):
    rows = tokenizer.encode(texts)
    ragged = graph.encode(tf.constant([text.encode() for text in texts]))
    assert ragged.dtype == tf.int32
    assert ragged.to_list() == rows
    decoded = tokenizer.decode(rows)
    assert _strings(graph.decode(ragged.to_tensor(PAD)).numpy()) == decoded
    return decoded


def halves_agree_on_tricky_text(tokenizer, graph, _):
    _assert_halves_agree(tokenizer, graph, _TRICKY)


def halves_agree_on_any_ids(tokenizer, graph, _):
    size = tokenizer.vocab_size
    ids = np.random.default_rng(11).integers(-7, size + 7, (53, 17), dtype=np.int32)
    ids[0], ids[1, 3], ids[2, 0] = PAD, END, END
    ids[3, :2] = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    assert _strings(graph.decode(ids).numpy()) == tokenizer.decode(ids)
    assert _strings(graph.pieces(ids).numpy()) == [tokenizer.pieces(row) for row in ids]


def known_text_comes_back(tokenizer, graph, _):
    texts = ["a man rides two horses", "zwei Frauen reiten", "Κυριακή 3"]
    expected = [text.lower() for text in texts] if tokenizer.lowercase else texts
    assert _assert_halves_agree(tokenizer, graph, texts) == expected


def halves_break_ties_alike(tokenizer, graph, _):
    """Periodic text has segmentations that differ only in order, and so in nothing but rounding."""
    chance = random.Random(13)
    units = ["".join(chance.choices("ahnres. ", k=chance.randint(1, 5))) for _ in range(1_009)]
    _assert_halves_agree(tokenizer, graph, [unit * chance.randint(2, 11) for unit in units])


def special_ids_are_no_text(tokenizer, graph, _):
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert tokenizer.piece_table()[:4] == ("<pad>", "<s>", "</s>", "<unk>")
    assert tokenizer.pieces([PAD, START, END, UNKNOWN]) == ["", "<s>", "</s>", "<unk>"]
    assert tokenizer.pieces([-1, tokenizer.vocab_size]) == ["", ""]
    row = tokenizer.encode(["two horses"])[0]
    assert min(row) > UNKNOWN
    assert tokenizer.decode([[START, PAD, *row, tokenizer.vocab_size, -1, END, *row]]) == ["two horses"]
    assert tokenizer.decode([np.array([UNKNOWN])])[0].strip() == "⁇"


def batches_may_be_empty(tokenizer, graph, _):
    assert tokenizer.encode([]) == [] and tokenizer.decode([]) == []
    assert tokenizer.encode([""]) == [[]] and tokenizer.decode([[]]) == [""]
    assert graph.encode(tf.constant([], tf.string)).to_list() == []
    for shape in ((0, 5), (2, 0)):
        ids = tf.zeros(shape, tf.int32)
        assert graph.decode(ids).numpy().tolist() == [b""] * shape[0]
        assert graph.pieces(ids).shape == shape


def what_is_no_text_never_fails_the_batch(tokenizer, graph, _):
    bad = [b"\xff", b"a man \xff\xfe rides", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\x80", b"two horses"]
    rows = graph.encode(tf.constant(bad)).to_list()
    # Invalid bytes read as U+FFFD do, from either half; how many of them is the decoder's choice.
    replaced = ["\ufffd", "a man \ufffd\ufffd rides", "\ufffd\ufffd\ufffd", "\ufffd", "\ufffd\ufffd", "two horses"]
    assert rows == tokenizer.encode(replaced)
    assert tokenizer.encode(["a \ud800b"]) == tokenizer.encode(["a \ufffdb"])  # half of a character


def it_is_saved_and_loaded(tokenizer, graph, folder):
    tokenizer.save(folder / "deep" / "source.v1")
    loaded = load_tokenizer(folder / "deep" / "source.v1")
    assert type(loaded) is type(tokenizer)
    assert loaded.piece_table() == tokenizer.piece_table()
    assert loaded.encode(_TRICKY) == tokenizer.encode(_TRICKY)
    assert loaded.lowercase == tokenizer.lowercase
    suffixes = {".json"} if tokenizer.kind == "chars" else {".json", ".model"}
    assert {path.name for path in (folder / "deep").iterdir()} == {f"source.v1{suffix}" for suffix in suffixes}


CHECKS = (
    halves_agree_on_tricky_text,
    halves_agree_on_any_ids,
    known_text_comes_back,
    halves_break_ties_alike,
    special_ids_are_no_text,
    batches_may_be_empty,
    what_is_no_text_never_fails_the_batch,
    it_is_saved_and_loaded,
)


@pytest.mark.parametrize("case", ["subword", "words", "chars", "subword-lower", "words-lower", "chars-lower"])
def test_both_halves_of_each_kind(case, tmp_path):
    kind, _, lower = case.partition("-")
    tokenizer = train_tokenizer(kind, _CORPUS, vocab_size=97, lowercase=bool(lower))
    graph = tokenizer_graph(tokenizer)
    with every() as failures:
        for check in CHECKS:
            with failures.of(check.__name__):
                check(tokenizer, graph, tmp_path)


def test_saving_replaces_whole_files(tmp_path, monkeypatch):
    train_tokenizer("subword", _CORPUS, 89).save(tmp_path / "source")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        train_tokenizer("chars", ["other"]).save(tmp_path / "source")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_scores_are_rounded_to_what_float32_adds_exactly():
    model = SubwordTokenizer.train(_CORPUS, vocab_size=97).model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    scores = [processor.get_score(i) for i in range(processor.get_piece_size())]
    assert len(set(scores)) > 7 and min(scores) < -3
    assert all(float(64 * score).is_integer() for score in scores)


def test_training_is_deterministic():
    for kind in ("subword", "words", "chars"):
        first, second = (train_tokenizer(kind, _CORPUS, 89) for _ in range(2))
        assert first.piece_table() == second.piece_table()
        assert first.vocab_size <= 89


def test_lower_case():
    lines = ["Straße ÄHRE", "ΣΑΣ Mann"]
    for kind in ("subword", "words", "chars"):
        tokenizer = train_tokenizer(kind, lines, lowercase=True, vocab_size=40)
        assert tokenizer.decode(tokenizer.encode(["STRAßE ähre"])) == ["straße ähre"]
        assert tokenizer.encode(["ΣΑΣ MANN"]) == tokenizer.encode(["σας mann"])


JOINED = ["می\u200cخواهم این را بخوانم", "خانه\u200cهای بزرگ", "క్\u200cష", "क्\u200dष", "a ﬁne man rides ①\u200b② é"]


def test_joiners_stay_and_other_text_is_normalised_as_it_is_asked_for():
    for kind in (SubwordTokenizer, WordTokenizer):
        tokenizer = kind.train(JOINED * 9, vocab_size=150)
        assert tokenizer.decode(tokenizer.encode(JOINED)) == [*JOINED[:4], "a fine man rides 1 2 é"]
        check_graph(tokenizer, [*JOINED, "\u200c", "x\u200dy \ufdd0 \ufdd1", "می خواهم"])
        assert not any(mark in piece for mark in "\ufdd0\ufdd1" for piece in tokenizer.piece_table())
    for normalization, expected in (
        ("nmt_nfkc", ["می خواهم این را بخوانم", "a fine man rides 1 2 é"]),
        ("nmt_nfkc_cf", ["می خواهم این را بخوانم", "a fine man rides 1 2 é"]),
        ("nfkc", [JOINED[0], "a fine man rides 1\u200b2 é"]),
        ("identity", [JOINED[0], JOINED[4]]),
    ):
        tokenizer = SubwordTokenizer.train(JOINED * 9, vocab_size=150, normalization=normalization)
        assert tokenizer.decode(tokenizer.encode([JOINED[0], JOINED[4]])) == expected, normalization
    with pytest.raises(InputError, match="'nfck'.*nfkc"):
        train_tokenizer("subword", JOINED, 150, normalization="nfck")
    with pytest.raises(InputError, match="`normalization`.*'nfkc'.*chars"):
        train_tokenizer("chars", JOINED, normalization="nfkc")


def test_words():
    tokenizer = train_tokenizer("words", ["a b a c", "a b d", "b a"], vocab_size=6)
    assert tokenizer.piece_table() == ("<pad>", "<s>", "</s>", "<unk>", "▁a", "▁b")
    assert tokenizer.encode(["b a c ab", "c b ab", ""]) == [[5, 4, UNKNOWN], [UNKNOWN, 5, UNKNOWN], []]


def test_characters_by_frequency_then_code_point():
    tokenizer = CharTokenizer.train(["bbb", "ca", "ac\u202f "])
    assert tokenizer.characters == ("b", " ", "a", "c")
    assert tokenizer.encode(["ab\u00a0\u2009z"]) == [[6, 4, 5, 5, UNKNOWN]]
    assert CharTokenizer.train(["bbb", "ca", "ac"], vocab_size=6).characters == ("b", "a")


def test_without_a_space_the_odd_spaces_are_unknown():
    tokenizer = CharTokenizer(["a", "b"])
    assert tokenizer.encode(["a b\u00a0"]) == [[4, UNKNOWN, 5, UNKNOWN]]
    assert tokenizer_graph(tokenizer).encode(tf.constant(["a b\u00a0"])).to_list() == [[4, UNKNOWN, 5, UNKNOWN]]


def test_pieces_are_printable():
    tokenizer = CharTokenizer([" ", "\u200c", "\x07", "é"])
    assert tokenizer.pieces([4, 5, 6, 7]) == ["▁", "U+200C", "U+0007", "é"]


def test_a_corpus_too_small_gives_a_smaller_vocabulary():
    assert 4 < SubwordTokenizer.train(["to be or not to be"] * 3, vocab_size=8_000).vocab_size < 50


def test_a_word_of_many_letters_is_learned_from_in_parts(monkeypatch):
    """What it takes grows with more than the square of its length."""
    learned, train = [], sentencepiece.SentencePieceTrainer.train

    def watched(sentence_iterator, **options):
        learned.extend(sentence_iterator)
        return train(sentence_iterator=iter(["a word"]), **options)

    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", watched)
    texts = ["a word", "ab" * 5_003]
    SubwordTokenizer.train(texts, vocab_size=19)
    assert [line.replace(" ", "") for line in learned] == [text.replace(" ", "") for text in texts]
    assert learned[0] == "a word" and 500 < max(map(len, learned[1].split())) <= 1_000


def test_rare_characters_are_learned():
    tokenizer = SubwordTokenizer.train(["a horse rides"] * 97 + ["ж"], vocab_size=19)
    assert UNKNOWN not in tokenizer.encode(["ж"])[0]


def test_long_lines_are_learned_from():
    tokenizer = SubwordTokenizer.train(["ab", "cd " * 3_001], vocab_size=19)
    assert UNKNOWN not in tokenizer.encode(["cd"])[0]


def test_errors_name_what_is_wrong():
    with every() as failures:
        for call, message in (
            (lambda: SubwordTokenizer.train(["  ", ""]), "none"),
            (lambda: SubwordTokenizer.train(["abcdefgh"], vocab_size=7), "13.*vocab_size=7"),
            (lambda: SubwordTokenizer.train(["a"], vocab_size=4), "`vocab_size`.*vocab_size=4"),
            (lambda: SubwordTokenizer(b"junk"), "4 bytes"),
            (lambda: CharTokenizer.train([""]), "none"),
            (lambda: CharTokenizer.train(["a"], vocab_size=4), "`vocab_size`.*vocab_size=4"),
            (lambda: CharTokenizer(["a", "bc"]), "'bc'"),
            (lambda: CharTokenizer(["a", "a"]), "repeated"),
            (lambda: train_tokenizer("subwords", ["a"]), "'subwords'.*subword"),
        ):
            with failures.of(message), pytest.raises(InputError, match=message):
                call()


def test_loading_errors_name_the_file(tmp_path):
    path = tmp_path / "source.json"
    with every() as failures:
        for content, message in (
            (None, "No such file"),
            (b"{", "JSON"),
            (b"\xff", "JSON"),
            (b"[1]", "'None'"),
            (b'{"kind": "syllables"}', "'syllables'"),
            (b'{"kind": "chars"}', "'characters'"),
            (b'{"kind": "subword"}', "source.model"),
        ):
            if content is not None:
                path.write_bytes(content)
            with failures.of(content), pytest.raises(InputError, match=f"{re.escape(str(path))}.*{message}"):
                load_tokenizer(tmp_path / "source")


def test_other_models_are_refused():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_CORPUS), model_writer=model, vocab_size=97, hard_vocab_limit=False, minloglevel=2
    )
    with pytest.raises(InputError, match="0-3"):
        SubwordTokenizer(model.getvalue())


class _Served(tf.Module):
    """Encodes and decodes strings, as an exported model does around its network."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        ids = self.graph.encode(text).to_tensor(PAD)
        return {"ids": ids, "pieces": self.graph.pieces(ids), "text": self.graph.decode(ids)}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["subword", "chars"])
def test_survives_the_tf1_loader(kind, tmp_path):
    """The stock server loads a SavedModel into a session, which Python's own loader does not imitate."""
    tokenizer = train_tokenizer(kind, _CORPUS, vocab_size=97, lowercase=True)
    served = _Served(tokenizer_graph(tokenizer))
    tf.saved_model.save(served, str(tmp_path), signatures={"serving_default": served.__call__})
    tags, key = [tf.saved_model.SERVING], tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    rows = tokenizer.encode(_TRICKY)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        signature = tf.compat.v1.saved_model.loader.load(session, tags, str(tmp_path)).signature_def[key]
        outputs = {name: info.name for name, info in signature.outputs.items()}
        feed = signature.inputs["text"].name
        got = session.run(outputs, {feed: [text.encode() for text in _TRICKY]})
        empty = session.run(outputs, {feed: []})
        session.run(outputs, {feed: [b"\xff\x00\xfe", b""]})
    for row, ids, pieces in zip(rows, got["ids"].tolist(), got["pieces"], strict=True):
        assert ids == row + [PAD] * (len(ids) - len(row))
        assert _strings(pieces[: len(row)]) == tokenizer.pieces(row)
    assert _strings(got["text"]) == tokenizer.decode(rows)
    assert empty["text"].size == 0


def test_the_python_half_needs_no_tensorflow():
    files = Path(zoo.text.__file__).parent.glob("*.py")
    imports = [name for file in files for name in re.findall(r"^(?:import|from) (\S+)", file.read_text("utf-8"), re.M)]
    assert "sentencepiece" in imports
    assert not [name for name in imports if name.startswith(("tensorflow", "export.graph.tokenizers"))]


def test_saved_files_are_data(tmp_path):
    CharTokenizer(["a", " "]).save(tmp_path / "target")
    assert json.loads((tmp_path / "target.json").read_bytes()) == {
        "kind": "chars",
        "lowercase": False,
        "characters": ["a", " "],
    }


@pytest.mark.skipif("ZOO_DATA" not in os.environ, reason="ZOO_DATA names no folder with multi30k/")
@pytest.mark.parametrize("kind", ["subword", "chars"])
def test_halves_agree_on_every_line_of_multi30k(kind):
    folder = Path(os.environ["ZOO_DATA"], "multi30k")
    files = {path.name: path.read_text(encoding="utf-8").split("\n") for path in sorted(folder.glob("*.[de][en]"))}
    assert set(files) == {f"{split}.{language}" for split in ("train", "val", "test") for language in ("de", "en")}
    tokenizer = train_tokenizer(kind, files["train.en"] + files["train.de"])
    graph = tokenizer_graph(tokenizer)
    for lines in files.values():
        _assert_halves_agree(tokenizer, graph, lines)


def test_a_tokenizer_without_end_is_saved_and_is_another_one(tmp_path):
    whole = CharTokenizer("ab")
    without = whole.without_end()
    assert (whole.has_end, without.has_end) == (True, False) and whole.identity() != without.identity()
    without.save(tmp_path / "saved")
    assert not load_tokenizer(tmp_path / "saved").has_end
    assert read_texts(without, ["ab", ""], 9) == [[4, 5], []] and read_texts(whole, ["ab"], 2) == [[4, END]]
