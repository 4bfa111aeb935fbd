"""SentencePiece models of `tokenizer.json`: which tokens runs of spaces become."""

from pathlib import Path

import pytest

from zoo.checkpoints.sentencepiece_writer import described_sentencepiece
from zoo.errors import InputError
from zoo.text.subwords import read_model

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
RUNS = ["\u2581" * size for size in (2, 3, 4)]


def described(merges):
    """Returns a `tokenizer.json` like Gemma's, whose runs of spaces are added tokens."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    vocabulary = ["<unk>", *BYTES, *RUNS, "\u2581", "a", "\u2581a"]
    join = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}]
    return {
        "added_tokens": [{"id": vocabulary.index(run), "content": run, **flags} for run in RUNS],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "decoder": {"type": "Sequence", "decoders": [*join, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "vocab": {piece: i for i, piece in enumerate(vocabulary)},
            "merges": [[first * "\u2581", second * "\u2581"] for first, second in merges] + [["\u2581", "a"]],
        },
    }


@pytest.mark.parametrize(
    ("merges", "sizes"),
    [
        ([(1, 1), (1, 2), (2, 1), (1, 3), (2, 2), (3, 1)], [2, 3]),  # in the order of ids
        ([(3, 1), (2, 2), (2, 1), (1, 3), (1, 2), (1, 1)], [4, 1]),  # in the order of scores, all equal
    ],
)
def test_runs_of_spaces_are_divided_in_the_order_of_merges(merges, sizes):
    processor = read_model(described_sentencepiece(Path("tokenizer.json"), described(merges), (), "<unk>"))
    assert [len(piece) for piece in processor.encode("     ", out_type=str)] == sizes
    assert processor.encode(" a  aé", out_type=str)[:2] == ["\u2581a", "\u2581\u2581"]
    assert processor.decode(processor.encode("  aé\n ")) == "  aé\n "


@pytest.mark.parametrize(
    "merges", [[(3, 1), (2, 2), (1, 1), (2, 1), (1, 3), (1, 2)], [(2, 2), (2, 1), (1, 3), (1, 2), (1, 1)]]
)
def test_other_orders_of_merges_are_refused(merges):
    with pytest.raises(InputError, match=r"tokenizer\.json.*model\.merges.*▁▁"):
        described_sentencepiece(Path("tokenizer.json"), described(merges), (), "<unk>")
