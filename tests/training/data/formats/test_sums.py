"""The `sums` dataset: right, and without leaks between splits."""

import math
import re
from collections import Counter

import pytest

from training.config.resolve import resolve
from training.data import TextData, load_data
from training.data.formats import sums
from training.tasks import get_task
from zoo.errors import InputError

SPLITS = ("train", "val", "test")
LINE = re.compile(r"(\d|[1-9]\d)([+-])(\d|[1-9]\d)=(\d+)")


@pytest.fixture(scope="module")
def splits():
    return {name: sums.lines(name) for name in SPLITS}


def _pairs(lines) -> set[tuple[int, int]]:
    found = [LINE.fullmatch(line) for line in lines]
    return {tuple(sorted((int(match[1]), int(match[3])))) for match in found}


def test_every_line_is_right(splits):
    for lines in splits.values():
        for line in lines:
            left, sign, right, result = LINE.fullmatch(line).groups()
            assert int(result) == (int(left) + int(right) if sign == "+" else int(left) - int(right)) >= 0


def test_sizes_and_variety(splits):
    assert {name: len(lines) for name, lines in splits.items()} == {"train": 11_900, "val": 1_000, "test": 2_000}
    for name, lines in splits.items():
        assert len(set(lines)) == len(lines)
        signs = Counter(LINE.fullmatch(line)[2] for line in lines)
        assert 0.6 < signs["+"] / len(lines) < 0.72, name
    assert set("".join(splits["train"])) == set("0123456789+-=")
    assert max(map(len, splits["train"])) == len("99+99=198")


def test_splits_share_no_operands_whatever_the_seed(splits):
    train = _pairs(splits["train"])
    for seed in (0, 5):
        val, test = (_pairs(sums.lines(name, seed)) for name in ("val", "test"))
        assert train.isdisjoint(val) and train.isdisjoint(test) and val.isdisjoint(test)
    both = [pair for name in SPLITS for pair in sums.operands(name)]
    assert len(set(both)) == len(both) == 100 * 101 // 2


def test_this_very_data(splits):
    """Results are only comparable while the data stays."""
    assert sums.lines("test", seed=0) == splits["test"] != sums.lines("test", seed=5)
    assert splits["train"][:3] == ["84-32=52", "10+18=28", "42+39=81"]
    assert splits["test"][:3] == ["62+60=122", "5+26=31", "9+88=97"]


def test_spec():
    data = load_data("sums", seed=3)
    assert isinstance(data, TextData)
    assert (data.spec, data.task, data.tokenizer) == ("sums", "language_model", "chars")
    assert (data.joined, data.prompt_end) == (False, "=")
    assert data.split("val").texts == sums.lines("val", seed=3)


def test_errors():
    with pytest.raises(InputError, match="'tests'.*test"):
        sums.operands("tests")
    with pytest.raises(InputError, match="'sums'.*Received: 'sums:3'"):
        load_data("sums:3")


@pytest.mark.parametrize("length", [4, 16])
def test_bits_per_character_depend_on_no_length(length):
    """All tokens of validation count, the long texts in parts: one token for each character and each end."""
    data, task = load_data("sums"), get_task("language_model")
    settings = task.settle(resolve("lstm_lm", "sums", [f"data.max_length={length}"]).data, data)
    batches = task.batches(settings, data, "val", task.make_tokenizers(settings, data), batch_tokens=4096)
    shown = [batches[index] for index in range(len(batches))]
    assert max(inputs["tokens"].shape[1] for inputs, _, _ in shown) == min(length, max(map(len, sums.lines("val"))) + 1)
    tokens = sum(batches.tokens.values())
    assert tokens == sum(weights.sum() for _, _, weights in shown)
    assert task.derived(math.log(2), tokens, data.split("val"))["bits_per_character"] == pytest.approx(1)
