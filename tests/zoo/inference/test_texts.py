"""Texts as they come: lists, arrays, columns of tables and tensors, of strings or of bytes in UTF-8."""

import numpy as np
import pytest

from zoo.errors import InputError
from zoo.inference.base_run import as_texts


class Column:
    """What a column of a table has of a list."""

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values


class Table:
    """What a table has, of which iteration gives the names of its columns."""

    columns = ("text",)

    def __iter__(self):
        return iter(self.columns)


def test_texts_of_all_kinds_are_read(subtests):
    tf = pytest.importorskip("tensorflow")
    expected = ["a cat", "Käse", ""]
    data = [text.encode() for text in expected]
    for name, given in {
        "list": expected,
        "tuple": tuple(expected),
        "bytes": data,
        "mixed": [expected[0], *data[1:]],
        "array": np.array(expected),
        "array of bytes": np.array(data),
        "array of objects": np.array(expected, object),
        "column": Column(expected),
        "tensor": tf.constant(expected),
        "generator": iter(expected),
    }.items():
        with subtests.test(name):
            texts = as_texts(given)
            assert texts == expected and {*map(type, texts)} <= {str, np.str_}
    assert as_texts([]) == []


def test_what_is_no_text_is_named_with_its_row(subtests):
    for given, *words in (
        ("a cat", "single string", "'a cat'"),
        (b"a cat", "single string"),
        (5, "int"),
        (None, "NoneType"),
        ({"text": "a cat"}, "dict"),
        (Table(), "Table"),
        (["a", None], "row 1", "None"),
        (["a", "b", float("nan")], "row 2", "nan"),
        ([["a"]], "row 0", "['a']"),
        (np.array([["a"]]), "row 0"),
        ([b"caf\xe9"], "row 0", "0xe9"),
    ):
        with subtests.test(repr(given)), pytest.raises(InputError) as caught:
            as_texts(given, "sources")
        assert not [word for word in (*words, "`sources`") if word not in str(caught.value)], caught.value
