"""The rows of a batch that each device or process makes: together they are the whole batch, however they are shared."""

import numpy as np
import pytest

from training.data.batching import DocumentBatches, LabelledBatches, PairBatches, Share, WindowBatches

TEXTS = [[5, 2]] * 4 + [[5, 6, 2]]
LINKS = [np.array([[0, 0], [1, 1]])] * 5


def make_pairs(share, **plan):
    return PairBatches(TEXTS, [[7, 2]] * 4 + [[8, 9, 2]], links=LINKS, batch_tokens=15, share=share, **plan)


def make_labelled(share, **plan):
    return LabelledBatches(TEXTS, [0, 1, 0, 1, 1], batch_tokens=15, share=share, **plan)


def make_documents(share, **plan):
    return DocumentBatches(TEXTS, batch_tokens=15, share=share, **plan)


def make_windows(share, steps=None, static_shapes=False, **plan):
    return WindowBatches(list(range(4, 36)), 3, batch_tokens=15, steps=steps, share=share, **plan)


KINDS = [make_pairs, make_labelled, make_documents, make_windows]


def flat(batch):
    inputs, outputs, weights = batch
    return [*inputs.values(), outputs, weights]


@pytest.mark.parametrize("make", KINDS)
def test_rows_are_filled_up_with_weight_zero(make):
    for parts, static_shapes in ((2, False), (3, True), (7, False), (7, True)):
        check_filled_up(make, parts, static_shapes)


def check_filled_up(make, parts, static_shapes):
    whole, even = make(None, static_shapes=static_shapes), make(Share(parts), static_shapes=static_shapes)
    assert len(even) == len(whole) and even.structure == whole.structure
    for index in range(len(even)):
        rows = len(whole[index][1])
        for filled, array in zip(flat(even[index]), flat(whole[index]), strict=True):
            assert len(filled) % parts == 0 and rows <= len(filled) < rows + parts
            np.testing.assert_array_equal(filled[:rows], array)
        *arrays, weights = flat(even[index])
        assert not weights[rows:].any()
        for array in arrays:
            np.testing.assert_array_equal(array[rows:], np.repeat(array[rows - 1 : rows], len(array) - rows, axis=0))
        assert even.tokens[index] == whole.tokens[index]
        assert weights.ndim == 1 or even.tokens[index] == np.count_nonzero(weights)


@pytest.mark.parametrize("make", KINDS)
def test_processes_make_the_rows_of_one_batch(make):
    for ends in ((0, 4), (0, 2, 4), (0, 1, 2, 3, 4)):
        for steps, static_shapes in ((None, False), (3, True)):
            check_rows(make, steps, static_shapes, ends)


def check_rows(make, steps, static_shapes, ends):
    options = {"steps": steps, "seed": 5, "static_shapes": static_shapes}
    whole = make(Share(4), **options)
    own = [make(Share(4, first, end), **options) for first, end in zip(ends, ends[1:], strict=False)]
    for index in range(len(whole)):
        parts = [flat(batches[index]) for batches in own]
        for array, pieces in zip(flat(whole[index]), zip(*parts, strict=True), strict=True):
            assert len({piece.shape for piece in pieces}) == 1
            np.testing.assert_array_equal(np.concatenate(pieces), array)
        assert {batches.tokens[index] for batches in own} == {whole.tokens[index]}


def test_only_its_own_rows_are_read(monkeypatch):
    batches = make_documents(Share(5, 2, 3))
    read = []
    gather = type(batches.sides[0]).gather
    monkeypatch.setattr(
        type(batches.sides[0]),
        "gather",
        lambda self, examples, *shape: read.extend(examples) or gather(self, examples, *shape),
    )
    batches[0]
    assert len(read) == 1


def test_rounds_go_on():
    batches = LabelledBatches([[5, 2]] * 5, [0, 1, 0, 1, 1], batch_tokens=4, steps=2, seed=3)
    even = LabelledBatches([[5, 2]] * 5, [0, 1, 0, 1, 1], batch_tokens=4, steps=2, seed=3, share=Share(2))
    even.round = batches.round = 4
    np.testing.assert_array_equal(even[1][0]["tokens"][: len(batches[1][1])], batches[1][0]["tokens"])
    assert even.tokens.keys() == {9}
