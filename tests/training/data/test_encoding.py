"""Examples as rows of ids."""

import pytest

from training.data import Labelled, LabelledData, Pairs, TextData, Texts
from training.data.encoding import Encoder, encode_split
from zoo.errors import InputError
from zoo.text import CharTokenizer
from zoo.vocabulary import END

CHARACTERS = CharTokenizer.train(["abc", "xyz\n"])


def rows_of(encoded, name):
    rows = encoded.columns[name]
    return rows.lists(range(len(rows)))


def test_labels_are_numbered_in_the_order_of_the_classes():
    texts = Labelled(["ab", "c", "a"], ["no", "yes", "maybe"])
    data = LabelledData(spec="here", tokenizer="chars", load_split=lambda name: texts)
    encoded = encode_split(data, "train", {"text": CHARACTERS}, ["maybe", "no", "yes"])
    assert rows_of(encoded, "label") == [[1], [2], [0]]
    assert rows_of(encoded, "text") == [[*row, END] for row in CHARACTERS.encode(texts.texts)]
    with pytest.raises(InputError, match="here, val: Unknown label 'yes'"):
        encode_split(data, "val", {"text": CHARACTERS}, ["maybe", "no"])


def test_each_side_has_its_tokenizer():
    other = CharTokenizer.train(["zyx"])
    encode = Encoder({"source": CHARACTERS, "target": other})
    (source,), (target,) = encode(Pairs(["ab"], ["zx"])).values()
    assert source == [*CHARACTERS.encode(["ab"])[0], END] and target == [*other.encode(["zx"])[0], END]


def test_lines_of_a_running_text_end_in_a_line_break():
    for joined, end in ((True, CHARACTERS.encode(["\n"])[0]), (False, [END])):
        data = TextData(spec="here", tokenizer="chars", load_split=lambda name: Texts(["ab", ""]), joined=joined)
        assert rows_of(encode_split(data, "train", {"text": CHARACTERS}), "text") == [
            [*CHARACTERS.encode(["ab"])[0], *end],
            end,
        ]
