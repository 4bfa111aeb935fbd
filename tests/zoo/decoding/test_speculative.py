"""Speculative search: the answers of the search without drafts, in fewer calls of the model."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keras import ops
from support.decoding import TOKENS, constraints

from zoo import decoding
from zoo.decoding import DraftModel, Drafts, greedy_search, sample
from zoo.decoding.speculative import look_up

pytestmark = pytest.mark.skipif(not decoding.can_resize(), reason="tensors keep their sizes on this backend")


class Bigrams:
    """Logits that depend on the row, the last two tokens and whether the position is even; it counts its calls.

    Rows have different lengths only with `by_row`.
    """

    def __init__(self, seed, batch, vocabulary, by_row=True):
        logits = np.random.default_rng(seed).normal(scale=2.0, size=(batch, 2, vocabulary, vocabulary, vocabulary))
        logits[..., [TOKENS.pad, TOKENS.start]] += 3.0  # tempting, and forbidden
        logits[..., TOKENS.end] -= 2.0
        self.vocabulary, self.by_row, self.calls = vocabulary, by_row, 0
        self.logits = ops.convert_to_tensor(logits.reshape(-1, vocabulary).astype("float32"))
        self.state = {"tokens": ops.zeros((batch, 0), "int32"), "row": ops.arange(batch, dtype="int32")}
        self.state["length"] = ops.zeros((batch,), "int32")

    def steps(self, tokens, state, memory):
        self.calls += 1
        added, length = tokens.shape[1], state["length"]
        tokens_so_far = ops.concatenate([state["tokens"], tokens], axis=1)
        before = ops.pad(tokens_so_far, ((0, 0), (1, 0)))[:, -added - 1 : -1]
        places = length[:, None] + ops.arange(added, dtype="int32")
        before = ops.where(places > 0, before, 0)
        index = ((state["row"][:, None] * 2 + places % 2) * self.vocabulary + before) * self.vocabulary + tokens
        state = {**state, "tokens": tokens_so_far, "length": length + added}
        return ops.take(self.logits, index, axis=0), state

    def step(self, last, state, memory):
        logits, state = self.steps(last[:, None], state, memory)
        return logits[:, 0], state

    def read(self, tokens, state, memory):
        assert tokens.shape[1] > 0
        logits, state = self.steps(tokens, state, memory)
        return logits[:, -1], state

    def rewind(self, state, counts):
        """Moves the tokens of each row to the end of the longest one."""
        tokens, counts = ops.convert_to_numpy(state["tokens"]), ops.convert_to_numpy(counts)
        lengths = ops.convert_to_numpy(state["length"]) - counts
        assert np.all(lengths >= 0) and (self.by_row or len(set(lengths)) <= 1)
        rows = np.zeros((len(lengths), lengths.max(initial=0)), "int32")
        for row, known, count, length in zip(rows, tokens, counts, lengths, strict=True):
            row[len(row) - length :] = known[len(known) - count - length : len(known) - count] if length else []
        state = {**state, "tokens": ops.convert_to_tensor(rows, "int32")}
        return {**state, "length": ops.convert_to_tensor(lengths, "int32")}


@st.composite
def searches(draw):
    batch, room = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 4, 12]))
    limits = [room, *draw(st.lists(st.integers(0, room), min_size=batch - 1, max_size=batch - 1))]
    prompt = st.lists(st.integers(2, 5), min_size=1, max_size=min(room, 9))
    kind = draw(st.sampled_from(["no prompt", "prompts", "begins with a prompt"]))
    if kind == "prompts":
        prompt = st.lists(st.integers(2, 5), max_size=min(room, 9))
    prompts = [tuple(draw(prompt)) for _ in range(batch)]
    options = {"forces_end": draw(st.booleans()), "min_length": draw(st.integers(0, min(3, *limits)))}
    if kind != "no prompt" and any(prompts):
        options |= {"prompts": prompts, "num_begun": int(kind == "begins with a prompt")}
    seed, length = draw(st.integers(0, 999)), draw(st.integers(1, 5))
    context = draw(st.lists(st.integers(2, 5), max_size=8))
    # The draft model agrees always, sometimes or hardly ever.
    changed = draw(st.sampled_from([None, 0.0, 1.0, 9.0]))
    choices = [draw(st.booleans()) for _ in ("draws", "has_other_ends", "by_row")]
    return seed, room, limits, options, length, context, changed, *choices


def explored(count):
    """Returns what makes a test of `count` drawn searches."""
    return lambda test: settings(deadline=None, max_examples=count)(given(searches())(test))


@explored(2)
@example((3, 24, [24], {}, 4, [], None, False, False, True))
@example((3, 24, [24, 24], {}, 3, [], None, False, False, False))  # drafts are confirmed to different lengths
@example((3, 24, [24, 20], {}, 3, [], 1.0, False, False, True))
@example((3, 24, [24, 9], {"prompts": [(3, 4, 2), (4,)], "num_begun": 1}, 3, [], 0.0, True, False, True))
def test_answers_are_those_without_drafts(case):
    check_search(case)


@pytest.mark.nightly
@explored(60)
def test_answers_are_those_without_drafts_at_length(case):
    check_search(case)


def check_search(case):
    """Checks a search with drafts against one without."""
    seed, room, limits, options, length, context, changed, draws, has_other_ends, by_row = case
    limited = constraints(limits, room, **options)
    if has_other_ends:
        limited = dataclasses.replace(limited, special=dataclasses.replace(TOKENS, other_ends=(4,)))
    batch, model = len(limits), Bigrams(seed, len(limits), 6, by_row)
    rows = ops.arange(batch, dtype="int32")
    contexts = ops.tile(ops.convert_to_tensor([context], "int32"), (batch, 1))
    drafts = Drafts(model.steps, model.rewind, length, contexts, by_row=by_row)
    if changed is not None:
        drafts = dataclasses.replace(drafts, model=drafting(model, seed, changed, limited))

    def search(drafts):
        model.calls = 0
        if draws:
            chance = {"seeds": rows, "row_numbers": 3 * rows, "temperature": 0.7, "top_k": 4, "top_p": 0.9}
            ids, log_prob = sample(model.step, model.state, limited, **chance, resizes=True, drafts=drafts)
        else:
            ids, log_prob = greedy_search(model.step, model.state, limited, resizes=True, drafts=drafts)
        return ops.convert_to_numpy(ids), ops.convert_to_numpy(log_prob), model.calls

    expected_ids, expected, calls = search(None)
    ids, log_prob, speculative_calls = search(drafts)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-4, atol=1e-5)
    assert speculative_calls <= calls


def drafting(model, seed, changed, limited):
    """Returns a draft model with the logits of a model of the same rows, to which noise is added."""
    draft = Bigrams(seed, model.state["row"].shape[0], model.vocabulary, model.by_row)
    noise = np.random.default_rng(seed + 1).normal(size=draft.logits.shape).astype("float32")
    draft.logits = draft.logits + changed * noise
    return DraftModel(draft.read, draft.rewind, draft.state, {}, reads_start=not limited.num_begun)


@pytest.mark.parametrize("changed", [0.0, 1.5])
@pytest.mark.parametrize("length", [pytest.param(1, marks=pytest.mark.nightly), 4])
def test_a_draft_model_saves_the_calls_for_what_it_gets_right(length, changed):
    """It has read exactly the tokens that were chosen: its drafts are those of a model that reads them anew."""
    model, limited = Bigrams(6, 1, 14), constraints([41])
    draft = drafting(model, 6, changed, limited)
    drafts = Drafts(model.steps, model.rewind, length, ops.zeros((1, 0), "int32"), draft)
    ids, _ = greedy_search(model.step, model.state, limited, resizes=True, drafts=drafts)
    chosen = [int(token) for token in ids[0] if token != TOKENS.pad]
    place, calls, right = 0, 0, 0
    while place < len(chosen):
        drafted = []
        while len(drafted) < min(length, 40 - place) and TOKENS.end not in drafted:
            tokens = ops.convert_to_tensor([[TOKENS.start, *chosen[:place], *drafted]], "int32")
            logits = ops.convert_to_numpy(draft.read(tokens, draft.state, {})[0])[0]
            drafted.append(int(logits[TOKENS.end :].argmax()) + TOKENS.end)
        equal = [a == b for a, b in zip(drafted, chosen[place:], strict=False)]
        right += (equal + [False]).index(False)
        place += (equal + [False]).index(False) + 1
        calls += 1
    assert model.calls == calls and right > 3


def test_rows_with_drafts_need_no_more_calls_than_the_slowest_one_alone():
    """Where they advance by row; and fewer than without drafts, in text that repeats itself."""
    model = Bigrams(2, 3, 6)

    def calls(rows, **options):
        """Returns the number of calls of the model for these rows in one batch."""
        model.calls, state = 0, {name: tensor[rows] for name, tensor in model.state.items()}
        if options:
            context = ops.zeros((state["row"].shape[0], 0), "int32")
            options = {"drafts": Drafts(model.steps, model.rewind, 4, context, **options)}
        greedy_search(model.step, state, constraints([24] * state["row"].shape[0]), resizes=True, **options)
        return model.calls

    alone = [calls(slice(row, row + 1), by_row=True) for row in range(3)]
    together = calls(slice(None), by_row=True)
    assert len(set(alone)) > 1 and together <= max(alone) < calls(slice(None), by_row=False)
    assert 2 * together <= calls(slice(None))


@pytest.mark.parametrize(
    "tokens, length, expected",
    [
        ([3, 4, 5, 6, 3, 4], 6, [5, 6, 3]),  # what followed the same two tokens
        ([3, 4, 5, 9, 4, 6, 9, 3, 4], 9, [5, 9, 4]),  # two tokens are better than a later single one
        ([8, 3, 4, 5, 7, 3, 4, 6, 8, 3, 4], 11, [5, 7, 3]),  # three are better than two
        ([3, 4, 5, 3, 4, 6, 3, 4], 8, [6, 3, 4]),  # of equal ones, the latest
        ([7, 7, 7], 3, [7, 7, 7]),  # repeated, as long as it takes
        ([3, 4, 5, 3, 4, 0, 0], 5, [5, 3, 4]),  # what follows `length` does not count
        ([3, 4, 5, 6, 7, 4], 6, None),  # one token is too few
        ([3], 1, None),
        ([0, 0], 1, None),
    ],
)
def test_drafts_are_what_followed_the_same_tokens_before(tokens, length, expected):
    drafted, found = look_up(ops.convert_to_tensor([tokens], "int32"), ops.convert_to_tensor([length], "int32"), 3)
    assert bool(found[0]) == (expected is not None)
    if expected is not None:
        assert ops.convert_to_numpy(drafted)[0].tolist() == expected
