"""Files of arrays, rows in them, and orders that are computed where they are asked for."""

import itertools
from collections import Counter

import numpy as np
import pytest

from training.data.batching import PairBatches
from training.data.order import ByLength, Strata, padded
from training.data.shards.arrays_file import ArraysWriter, open_arrays
from training.data.shards.permutation import Permutation, in_orders
from training.data.shards.rows import Part, Rows, count_longer
from zoo.errors import InputError
from zoo.vocabulary import END


def write(path):
    with ArraysWriter(path, {"ids": 2, "ids.offsets": 4, "empty": 8}) as writer:
        writer.append("ids", np.array([7, 300, 2]))
        writer.append("ids", np.array([65535]))
        writer.append("ids.offsets", np.array([0, 3, 4]))
        return writer.finish()


def test_a_file_byte_for_byte(tmp_path):
    """As docs/shards.md describes it, read without our code."""
    write(tmp_path / "a.shard")
    data = (tmp_path / "a.shard").read_bytes()
    assert data[:16] == b"ZOOARRAY" + (1).to_bytes(4, "little") + (3).to_bytes(4, "little")
    entry = data[16 + 64 : 16 + 128]
    assert entry[:40].rstrip(b"\0") == b"ids.offsets"
    width, position, count = np.frombuffer(entry[40:], "<u8").tolist()
    assert (width, position % 64, count) == (4, 0, 3)
    mapped = np.memmap(tmp_path / "a.shard", "<u4", "r", position, (count,))
    assert mapped.tolist() == [0, 3, 4]
    arrays = open_arrays(tmp_path / "a.shard")
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "ids": [7, 300, 2, 65535],
        "ids.offsets": [0, 3, 4],
        "empty": [],
    }
    with pytest.raises(ValueError, match="read-only"):
        arrays["ids"][0] = 1


DAMAGE = {
    "is damaged: it has": (lambda data: data[:-1], lambda data: data + b"x"),
    "header": (lambda data: data[:50],),
    "ZOOARRAY": (lambda data: b"", lambda data: b"PK" + data[2:]),
    "has version 2": (lambda data: data[:8] + b"\2" + data[9:],),
    "SHA-256": (lambda data: data[:-1] + b"x",),
    "header is": (lambda data: data[:56] + b"\7" + data[57:],),
}


def test_damaged_files(tmp_path, subtests):
    path = tmp_path / "a.shard"
    for message, changes in DAMAGE.items():
        for change in changes:
            with subtests.test(message):
                sha256 = write(path)
                path.write_bytes(change(path.read_bytes()))
                with pytest.raises(InputError, match=message) as caught:
                    open_arrays(path, sha256)
                assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_rows_in_several_arrays_are_those_in_one():
    rng = np.random.default_rng(0)
    lists = [[*rng.integers(4, 60000, size=size).tolist(), END] for size in rng.integers(0, 17, size=43)]
    whole = Rows.of(lists)
    pieces = [lists[:7], [], lists[7:8], lists[8:]]
    parts = Rows([Part(Rows.of(piece).values().astype(np.uint16), Rows.of(piece).parts[0].offsets) for piece in pieces])
    chosen = rng.integers(43, size=29)
    for rows in (whole, parts):
        assert len(rows) == 43 and rows.all_lengths().tolist() == list(map(len, lists))
        assert rows.lengths(chosen).tolist() == [len(lists[number]) for number in chosen]
        gathered = rows.gather(chosen, 19, 31)
        assert gathered.dtype == np.int32 and not gathered[29:].any()
        assert [row[row > 0].tolist() for row in gathered[:29]] == [lists[number] for number in chosen]
        flat = list(itertools.chain.from_iterable(lists))
        positions = rng.integers(len(flat), size=(5, 3))
        selected = rows.select(chosen)
        assert [row.tolist() for row in np.split(selected.values(), selected.parts[0].offsets[1:-1])] == [
            lists[number] for number in chosen
        ]
        assert len(rows.select([])) == 0 and rows.cut(3).select(chosen).limit == 3
        assert rows.take(positions).tolist() == np.array(flat)[positions].tolist()
        cut = rows.cut(5)
        expected = [row if len(row) <= 5 else [*row[:4], END] for row in lists]
        assert [row[row > 0].tolist() for row in cut.gather(range(43), 5)] == expected
        assert count_longer([cut, rows], 5) == sum(len(row) > 5 for row in lists)
        assert [row[row > 0].tolist() for row in Rows.of([[5, 6, 7], [8, 9]]).cut(2).gather([0, 1], 2)] == [
            [5, 6],
            [8, 9],
        ]
        broken = rows.split_long(5)
        assert [row[row > 0].tolist() for row in broken.gather(range(len(broken)), 5)] == [
            row[first : first + 5] for row in lists for first in range(0, len(row), 5)
        ]


def test_a_permutation_is_one():
    for size in (1, 2, 3, 4096, 4097, 5003, 65536, 65537):
        order = Permutation(size, 3, 5)
        assert sorted(order(range(size)).tolist()) == list(range(size))
        places = np.array([size - 1, 0])
        assert order(places).tolist() == [order([size - 1])[0], order([0])[0]]
        if size > 3:
            assert order(range(size)).tolist() != Permutation(size, 3, 6)(range(size)).tolist()


def test_several_orders_at_once_are_each_of_them():
    orders = [Permutation(size, 3, size) for size in (5, 4097, 70001, 7, 1 << 33)]
    places = [[4, 0], [4096, 0, 17], [], [6], [1 << 32, 5]]
    found = in_orders(orders, places)
    for order, some, own in zip(orders, places, found, strict=True):
        assert own.dtype == np.int64 and own.tolist() == [order([place])[0] for place in some]
    assert in_orders([], []) == []


def test_every_order_of_few_numbers_is_as_likely():
    drawn = Counter(tuple(Permutation(4, seed)(range(4))) for seed in range(2400))
    assert len(drawn) == 24
    assert sum((times - 100) ** 2 / 100 for times in drawn.values()) < 49.7  # χ², 23 degrees of freedom, p = 0.001


@pytest.mark.nightly
def test_many_numbers_go_everywhere_alike():
    """χ² of where a number comes to, of what follows it, and of how many stay in place, over keys; p = 0.001 each."""
    size, keys, bins = 5003, 200, 10
    orders = [Permutation(size, 7, key)(np.arange(size)) for key in range(keys)]
    for values in (
        np.array([order[17] for order in orders]),
        np.array([(order[18] - order[17]) % size for order in orders]),
        orders[0][:600],
    ):
        found = np.bincount(values * bins // size, minlength=bins)
        assert ((found - len(values) / bins) ** 2 / (len(values) / bins)).sum() < 27.9
    fixed = sum(int((order == np.arange(size)).sum()) for order in orders)
    assert abs(fixed - keys) < 4 * np.sqrt(keys)


def corpus_of(lengths):
    order = np.lexsort((*lengths.T, lengths.max(axis=1)))
    cells, counts = np.unique(lengths, axis=0, return_counts=True)
    by_length = np.lexsort((*cells.T, cells.max(axis=1)))
    return ByLength(cells[by_length], counts[by_length], order)


@pytest.mark.parametrize(("static_shapes", "limit"), [(False, None), (True, None), (False, 11)])
def test_an_epoch_of_strata_has_every_example_once_within_the_budget(static_shapes, limit):
    lengths = np.random.default_rng(0).integers(1, 40, size=(9001, 2))
    strata = Strata(corpus_of(lengths), 300, 5, static_shapes, limit)
    count = strata.pass_length()
    epochs = [[strata.examples_of(step) for step in range(first, first + count)] for first in (0, count)]
    capped = np.minimum(lengths, limit or 99)
    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(9001))
        for batch in epoch:
            assert len(batch) * padded(capped[batch], static_shapes).max() <= 300
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}
    widths = [capped[batch].max() for batch in epochs[0]]
    assert widths != sorted(widths)
    if not static_shapes:
        room = sum(capped[batch].max(axis=0).sum() * len(batch) for batch in epochs[0])
        assert capped.sum() / room > 0.8


def test_a_batch_far_on_is_found_at_once_and_again():
    lengths = np.random.default_rng(1).integers(1, 20, size=(503, 1))
    strata, again = Strata(corpus_of(lengths), 100, 5), Strata(corpus_of(lengths), 100, 5)
    assert strata.examples_of(10**9).tolist() == again.examples_of(10**9).tolist()
    assert Strata(corpus_of(lengths), 100, 6).examples_of(10**9).tolist() != strata.examples_of(10**9).tolist()


def test_strata_of_few_or_overlong_examples():
    for lengths in ([[5]], [[900], [3]], [[3, 900], [4, 2], [3, 3]]):
        strata = Strata(corpus_of(np.array(lengths)), 100, 0)
        seen = np.concatenate([strata.examples_of(step) for step in range(strata.pass_length())])
        assert sorted(seen) == list(range(len(lengths)))


def test_batches_of_strata_are_of_the_same_rows():
    source = [[4 + number] * (1 + number % 7) + [END] for number in range(97)]
    lengths = np.array([[len(row), len(row)] for row in source])
    batches = PairBatches(source, source, batch_tokens=64, steps=5, seed=1, corpus=corpus_of(lengths))
    (inputs, outputs, weights), tokens = batches.batch_of(0)
    assert inputs["source"].tolist() == outputs.tolist() and tokens == weights.sum() == (outputs > 0).sum()


@pytest.mark.parametrize("limit", [None, 4])
def test_batches_of_many_parts_are_those_of_one(limit, monkeypatch):
    monkeypatch.setattr("training.data.batching._TOKENS_READ", 300)  # of four steps, and not of all
    rng = np.random.default_rng(3)
    lists = [rng.integers(4, 99, size=size).tolist() + [END] for size in rng.integers(0, 9, size=301)]
    whole, pieces = Rows.of(lists), [Rows.of(lists[first : first + 50]).parts[0] for first in range(0, 301, 50)]
    lengths = np.array([[len(row)] * 2 for row in lists])
    made = [
        PairBatches(rows, rows, batch_tokens=64, steps=5, seed=1, corpus=corpus_of(lengths))
        for rows in (whole if limit is None else whole.cut(limit), Rows(pieces, limit))
    ]
    for step in [*range(made[0].pass_length() + 9), 10**6, 3]:
        for left, right in zip(*(batches.batch_of(step)[0] for batches in made), strict=True):
            for name in left if isinstance(left, dict) else [...]:
                np.testing.assert_array_equal(left[name], right[name])
