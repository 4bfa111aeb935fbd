"""Tokenizers that come by themselves: ids as their own software has them, and files that are refused."""

import io
import json

import pytest
import sentencepiece
from support import checkpoints

from training.data.sampling import SubwordSampler
from zoo.checkpoints.tokenizer_file import read_tokenizer_file
from zoo.errors import InputError
from zoo.text import load_tokenizer
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN

BYTES, WORDPIECE, PIECES = "gpt_neox/tokenizer.json", "minilm/tokenizer.json", "mistral/tokenizer.json"
# Of each fixture the ids there of padding, start, end and unknown; what is beyond its tokens is new.
FILES = {
    "llama/tokenizer.model": (-1, 1, 2, 0),
    "t5/spiece.model": (0, -1, 1, 2),
    BYTES: (-1, 303, 0, 304),
    "qwen3/tokenizer.json": (-1, 297, 290, 298),
    WORDPIECE: (0, 2, 3, 1),
    PIECES: (-1, 1, 2, 0),
}
TEXTS = ["Ein Mann", "ein MANN ﬁ ½  x", "漢字 ein…", ""]


def original_ids(tokenizer):
    return tokenizer.model_ids if hasattr(tokenizer, "model_ids") else tokenizer.original_ids


@pytest.mark.parametrize("name", FILES)
def test_ids_are_those_of_the_file(name, tmp_path):
    tokenizer, expected = read_tokenizer_file(checkpoints.FIXTURES / name), checkpoints.expected(name.split("/")[0])
    original = original_ids(tokenizer)
    assert original[: UNKNOWN + 1] == FILES[name] and len(set(original)) >= len(original) - 1
    assert tokenizer.piece_table()[:UNKNOWN] == SPECIAL_PIECES[:UNKNOWN]
    rows = tokenizer.encode(expected["texts"])
    assert [[original[i] for i in row] for row in rows] == expected["token_ids"]
    assert not {PAD, START, END} & {i for row in rows for i in row}
    checkpoints.check_graph(tokenizer, expected["texts"])
    for changed in (tokenizer, tokenizer.without_start(), tokenizer.without_end()):
        changed.save(tmp_path / "text")
        loaded = load_tokenizer(tmp_path / "text")
        assert loaded.identity() == changed.identity() and loaded.whole([5]) == changed.whole([5])
    assert START not in tokenizer.without_start().whole([5])


@pytest.mark.parametrize(
    "options", [{"normalization_rule_name": "nfkc_cf"}, {"model_type": "bpe", "byte_fallback": True}]
)
def test_a_model_of_sentencepiece_reads_as_it_was_trained(options, tmp_path):
    model, path = io.BytesIO(), tmp_path / "a, b.model"
    usual = {"vocab_size": 300 if "byte_fallback" in options else 40, "pad_id": 5, "minloglevel": 2}
    lines = ["ein Mann und eine Frau", "eine alte Frau sieht ein Kind"] * 5
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, **usual, **options
    )
    path.write_bytes(model.getvalue())
    tokenizer, theirs = read_tokenizer_file(path), sentencepiece.SentencePieceProcessor(model_file=str(path))
    rows = tokenizer.encode(TEXTS)
    assert [[tokenizer.model_ids[i] for i in row] for row in rows] == theirs.encode(TEXTS)
    assert tokenizer.model_ids[: UNKNOWN + 1] == (5, 1, 2, 0)
    assert tokenizer.decode(rows)[0] == theirs.decode(theirs.encode(TEXTS[0]))
    checkpoints.check_graph(tokenizer, TEXTS)
    if options.get("model_type") == "bpe":
        with pytest.raises(InputError, match=r"data\.sampling.*reordered_subword"):
            SubwordSampler(tokenizer, 0.1)
        return
    text = "eine alte frau"
    rows = [[*row, END] for row in tokenizer.encode([text])]
    drawn = [SubwordSampler(tokenizer, 0.1)(rows, [step]) for step in range(5)]
    assert len({str(each) for each in drawn}) > 1 and {tokenizer.decode(each)[0] for each in drawn} == {text}


def spoiled(name, **changes):
    """Returns a `tokenizer.json` of the fixtures in which parts are others; those of a dict of the model are merged."""
    described = json.loads((checkpoints.FIXTURES / name).read_text(encoding="utf-8"))
    model = {**described["model"], **changes.pop("model", {})}
    return json.dumps({**described, "model": model, **changes})


REFUSED = {
    "empty": (b"", "SentencePiece"),
    "cut": ((checkpoints.FIXTURES / "llama/tokenizer.model").read_bytes()[:999], "SentencePiece"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    "cut JSON": (spoiled(BYTES)[:99], "damaged"),
    "no UTF-8": (b'{"\xff', "damaged"),
    "no tokenizer": ("{}", "damaged"),
    "no vocabulary": ('{"model": {"type": "BPE"}}', "damaged"),
    "no ids": (spoiled(BYTES, model={"vocab": {"a": "b"}}), "damaged"),
    "unigram": (spoiled(BYTES, model={"type": "Unigram"}), "'Unigram'"),
    "words": (spoiled(BYTES, model={"type": "WordLevel"}), "'WordLevel'"),
    "pieces of bytes": (spoiled(BYTES, model={"byte_fallback": True}), "model.byte_fallback=True"),
    "an added word": (spoiled(PIECES, added_tokens=[{"id": 300, "content": "word", "special": False}]), "'word'"),
    "other spaces": (spoiled(PIECES, pre_tokenizer={"type": "Whitespace"}), "'Whitespace'"),
    "ends of words": (spoiled(BYTES, model={"end_of_word_suffix": "</w>"}), "model.end_of_word_suffix='</w>'"),
    "no bytes": (spoiled(BYTES, pre_tokenizer={"type": "Whitespace"}), "'Whitespace'"),
    "lower case": (spoiled(BYTES, normalizer={"type": "Lowercase"}), "'Lowercase'"),
    "a merge of nothing": (spoiled(BYTES, model={"merges": [["xq", "zz"]]}), "'xq'"),
    "a word": (
        spoiled(BYTES, added_tokens=[{"id": 310, "content": "word", "special": False, "rstrip": True}]),
        "'word'",
    ),
    "a lone surrogate": (
        spoiled(BYTES, added_tokens=[{"id": 310, "content": "<\ud800>", "special": True}]),
        "valid Unicode",
    ),
    "no padding": (spoiled(WORDPIECE, model={"vocab": {"[UNK]": 0}}, added_tokens=[]), "'[PAD]'"),
    "nothing known around texts": (spoiled(WORDPIECE, post_processor={"type": "ByteLevel"}), "post_processor"),
}


def test_texts_begin_as_the_file_says(tmp_path):
    (tmp_path / "tokenizer.json").write_text(spoiled(WORDPIECE, post_processor=None), encoding="utf-8")
    without, usual = (
        read_tokenizer_file(path) for path in (tmp_path / "tokenizer.json", checkpoints.FIXTURES / WORDPIECE)
    )
    assert usual.whole([7]) == [START, 7, END] and without.whole([7]) == [7, END]
    assert without.encode(TEXTS) == usual.encode(TEXTS)


def test_special_tokens_beyond_the_pieces_of_sentencepiece_have_ids_and_are_in_no_text(tmp_path):
    described = json.loads((checkpoints.FIXTURES / PIECES).read_text(encoding="utf-8"))
    usual, size = read_tokenizer_file(checkpoints.FIXTURES / PIECES), len(described["model"]["vocab"])
    added = [token for token in described["added_tokens"] if token["content"] != "</s>"]
    names = ("<|im_start|>", "<|endoftext|>")
    added += [{"id": size + place, "content": name, "special": True} for place, name in enumerate(names)]
    (tmp_path / "tokenizer.json").write_text(json.dumps({**described, "added_tokens": added}), encoding="utf-8")
    tokenizer = read_tokenizer_file(tmp_path / "tokenizer.json")
    assert tokenizer.vocab_size == usual.vocab_size + 2 and tokenizer.model_ids.count(-1) == 3
    assert tokenizer.model_ids[:4] == usual.model_ids[:4] and tokenizer.encode(TEXTS) == usual.encode(TEXTS)
    assert tokenizer.decode(tokenizer.encode(TEXTS[:2])) == usual.decode(usual.encode(TEXTS[:2]))


def test_files_that_are_refused(subtests, tmp_path):
    for name, (content, word) in REFUSED.items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with subtests.test(name), pytest.raises(InputError) as raised:
            read_tokenizer_file(path)
        message = str(raised.value)
        assert str(path) in message and word in message and "\n" not in message, message
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError) as raised:
            read_tokenizer_file(path)
        assert str(path) in str(raised.value)
