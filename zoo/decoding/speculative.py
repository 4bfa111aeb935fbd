"""Speculative decoding: drafts several tokens, and confirms them by one call of the model."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras import ops

from zoo.decoding.constraints import Constraints, ban_special
from zoo.decoding.search import Rows
from zoo.decoding.single_sequence import Choice, SingleSequenceSearch
from zoo.decoding.top_k import argmax
from zoo.decoding.while_loops import while_loop
from zoo.row_selection import take, take_per_row

MIN_NGRAM = 2
MAX_NGRAM = 3
"""The sizes of the n-grams that `look_up` compares."""


def look_up(history: Any, lengths: Any, num_tokens: int) -> tuple[Any, Any]:
    """Returns the tokens that followed the latest earlier occurrence of the last tokens of each row.

    The last tokens are the longest n-gram at the end that occurs earlier, of `MIN_NGRAM` to `MAX_NGRAM` tokens. If
    fewer than `num_tokens` tokens follow it, they are repeated.

    Args:
        history: Tokens [B, H], of which the first `lengths` are valid.
        lengths: Number of tokens of each row, at least 1, int32 [B].
        num_tokens: Number of tokens to return, K.

    Returns:
        Tokens [B, K], and whether there is an earlier occurrence, boolean [B]; without one, the tokens are arbitrary.

    Reference:
        Saxena 2023, "Prompt Lookup Decoding", https://github.com/apoorvumang/prompt-lookup-decoding
    """
    size, lengths = ops.shape(history)[1], lengths[:, None]
    places, offsets = ops.arange(size, dtype="int32"), ops.arange(MAX_NGRAM, dtype="int32")
    padded = ops.pad(history, ((0, 0), (MAX_NGRAM, 0)), constant_values=-1)  # which is no token
    last = take_per_row(padded, lengths - 1 + MAX_NGRAM - offsets)
    before = take(padded, places + MAX_NGRAM - offsets[:, None], axis=1)  # [B, N, H], tokens `offset` positions earlier
    equal = ops.logical_and(ops.equal(before, last[:, :, None]), (places < lengths - 1)[:, None])
    sizes = ops.sum(ops.cumprod(ops.cast(equal, "int32"), axis=1), axis=1)
    best = ops.max(ops.where(sizes >= MIN_NGRAM, sizes * size + places, -1), axis=1)
    occurs = best >= 0
    place = ops.where(occurs, best % ops.maximum(size, 1), 0)[:, None]
    period = ops.maximum(lengths - 1 - place, 1)
    following = place + 1 + ops.arange(num_tokens, dtype="int32") % period
    return take_per_row(history, ops.minimum(following, size - 1)), occurs


@dataclasses.dataclass(frozen=True)
class DraftModel:
    """A model that drafts tokens and is much faster than the one that confirms them.

    Args:
        read: Function of tokens [R, T], T ≥ 1, the state and the memory that returns the logits after the last
            token, [R, V], and the new state.
        rewind: See `Drafts`.
        state: The state before the first token.
        memory: Constant inputs of `read`, nested tensors with the batch axis first.
        reads_start: Whether the first token that it reads is the start token; otherwise it is the prompt's first one.
    """

    read: Callable[[Any, Any, Any], tuple[Any, Any]]
    rewind: Callable[[Any, Any], Any]
    state: Any
    memory: Any
    reads_start: bool = True


@dataclasses.dataclass(frozen=True)
class Drafts:
    """How a search drafts several tokens and confirms them by one call of the model.

    Args:
        steps: Function of tokens [R, T], the state and the memory that returns the logits after each token,
            [R, T, V], and the new state.
        rewind: Function of a state and the number of last tokens to drop of each row, int32 [R], that returns the
            state without them.
        length: Number of tokens to draft, at least 1.
        context: Tokens in which drafts are looked up besides the prompt and the output, int32 [B, C], such as sources.
        model: The `DraftModel` that drafts tokens; `None` to look them up.
        by_row: Whether each row advances by the tokens confirmed for it, so that the numbers in `rewind` differ.
            Otherwise, all rows advance by the smallest number confirmed for an unfinished row.

    Reference:
        Stern et al. 2018, section 3, https://arxiv.org/abs/1811.03115;
        Leviathan et al. 2023, section 2, https://arxiv.org/abs/2211.17192
    """

    steps: Callable[[Any, Any, Any], tuple[Any, Any]]
    rewind: Callable[[Any, Any], Any]
    length: int
    context: Any
    model: DraftModel | None = None
    by_row: bool = False


class SpeculativeSearch(SingleSequenceSearch):
    """Chooses one token per sentence at every step, or several tokens where a draft is confirmed.

    The tokens of prompts are drafts, too. Random choices depend only on the row and the position (see `sample`), so
    that drafts do not change them, and a draft model that makes the same choices from similar probabilities is often
    confirmed.

    Args:
        choose: See `SingleSequenceSearch`.
        variables: See `SingleSequenceSearch`.
        drafts: The `Drafts`.
        constraints: The `Constraints`, without `no_repeat_ngram`.
    """

    def __init__(self, choose: Choice | None, variables: Rows, drafts: Drafts, constraints: Constraints) -> None:
        super().__init__(choose, variables, drafts.steps, constraints, True)
        self.drafts = drafts

    def initial_rows(self, batch: Any) -> Rows:
        length = ops.broadcast_to(ops.cast(self.constraints.num_begun, "int32"), (batch,))
        return {**super().initial_rows(batch), "context": self.drafts.context, "length": length}

    def run(self, state: Any, memory: Any) -> Rows:
        """See `Search`; with a draft model, state and memory are dicts of those of both models."""
        model, zeros = self.drafts.model, ops.zeros_like(self.constraints.max_lengths)
        state = self.drafts.rewind(state, zeros)  # from now on, rows may have different lengths
        if model is None:
            return super().run(state, memory)
        num_unread = ops.cast(self.constraints.num_begun + int(model.reads_start), "int32")
        state = {"model": state, "draft": model.rewind(model.state, zeros), "num_unread": num_unread}
        return super().run(state, {"model": memory, "draft": model.memory})

    def _look_up(self, rows: Rows) -> Any:
        """Returns drafted tokens, int32 [B, k]: those of prompts, and those that `look_up` returns.

        k is 0 if no unfinished row has a draft or, where all rows advance together, if an unfinished row has none.
        """
        history = ops.concatenate([rows["context"], rows["ids"]], axis=1)
        tokens, is_drafted = look_up(history, ops.shape(rows["context"])[1] + rows["length"], self.drafts.length)
        if self.constraints.prompt is not None:
            positions = rows["length"][:, None] + ops.arange(self.drafts.length, dtype="int32")
            prompt, in_prompt = self.constraints.prompt_tokens(_with_positions(rows), positions)
            tokens = ops.where(in_prompt, prompt, tokens)
            is_drafted = ops.logical_or(is_drafted, in_prompt[:, 0])
        if self.drafts.by_row:
            has_draft = ops.any(ops.logical_and(is_drafted, ops.logical_not(rows["finished"])))
        else:
            has_draft = ops.all(ops.logical_or(is_drafted, rows["finished"]))
        return tokens[:, : ops.where(has_draft, self._longest_draft(rows), 0)]

    def _longest_draft(self, rows: Rows) -> Any:
        """Returns the number of tokens to draft, one less than the space of the shortest unfinished row or fewer."""
        shortest = ops.min(ops.where(rows["finished"], self.constraints.capacity, rows["length"]))
        return ops.clip(self.constraints.capacity - shortest - 1, 0, self.drafts.length)

    def _predict(self, model: DraftModel, rows: Rows, state: Any, memory: Any) -> tuple[Any, Any, Any]:
        """Returns tokens drafted by a model, int32 [B, k], its state, and the number of tokens that it drafted.

        The model first reads the tokens that it has not read yet. k is that of the longest draft, or smaller if all
        rows end; the model drafts at least one token, even if k is 0 because there is no space.
        """
        longest = self._longest_draft(rows)

        def choose(logits: Any, count: Any) -> tuple[Any, Any]:
            chosen, _, ends = self._choose(logits[:, None], rows, rows["length"][:, None] + count)
            return chosen, ends[:, 0]

        def extend(loop: Rows) -> Rows:
            last = take(loop["tokens"], loop["count"] - 1, axis=1)
            logits, state = model.read(last[:, None], loop["state"], memory)
            chosen, ends = choose(logits, loop["count"])
            tokens = ops.where(ops.equal(places, loop["count"]), chosen, loop["tokens"])
            return {
                "count": loop["count"] + 1,
                "tokens": tokens,
                "ended": ops.logical_or(loop["ended"], ends),
                "state": state,
            }

        places = ops.arange(self.drafts.length, dtype="int32")
        history = ops.pad(rows["ids"], ((0, 0), (1, 0)), constant_values=self.special.start)
        unread = rows["length"][:, None] + ops.arange(1 - state["num_unread"], 1, dtype="int32")
        logits, draft_state = model.read(take_per_row(history, ops.maximum(unread, 0)), state["draft"], memory)
        chosen, ends = choose(logits, 0)
        loop = {
            "count": ops.ones((), dtype="int32"),
            "tokens": ops.where(ops.equal(places, 0), chosen, self.special.pad),
            "ended": ops.logical_or(rows["finished"], ends),
            "state": draft_state,
        }
        loop = while_loop(
            lambda loop: ops.logical_and(loop["count"] < longest, ops.logical_not(ops.all(loop["ended"]))),
            extend,
            loop,
            resizes=True,
        )
        tokens = loop["tokens"][:, : ops.minimum(loop["count"], longest)]
        return tokens, loop["state"], loop["count"]

    def _body(self, loop: Rows, memory: Any) -> Rows:
        rows, state, model = loop["rows"], loop["state"], self.drafts.model
        if model is None:
            _, changes, state = self._confirm(self._look_up(rows), rows, state, memory)
        else:
            changes, state = self._predict_and_confirm(model, rows, state, memory)
        return {"index": loop["index"], "rows": {**rows, **changes}, "state": state}

    def _predict_and_confirm(self, model: DraftModel, rows: Rows, state: Any, memory: Any) -> tuple[Rows, Any]:
        """Returns the changed variables of rows and the states of both models, after a draft by the draft model."""
        drafted, draft_state, num_drafted = self._predict(model, rows, state, memory["draft"])
        counts, changes, model_state = self._confirm(drafted, rows, state["model"], memory["model"])
        is_finished = changes["finished"]
        # A row whose whole draft was confirmed has two unread tokens, the last one of the draft and the one after it.
        is_longer = ops.logical_and(counts > num_drafted, ops.logical_not(is_finished))
        num_unread = 1 + ops.max(ops.cast(is_longer, "int32"), initial=0)
        drops = num_drafted - 1 - counts + num_unread
        state = {
            "model": model_state,
            "draft": model.rewind(draft_state, self._drops(drops, is_finished)),
            "num_unread": num_unread,
        }
        return changes, state

    def _drops(self, drops: Any, is_finished: Any) -> Any:
        """Returns how many tokens `rewind` drops of each row; of a finished row, the fewest of all unfinished rows."""
        fewest = ops.min(ops.where(is_finished, 1 + self.drafts.length, drops), initial=1 + self.drafts.length)
        return ops.where(is_finished, ops.where(ops.all(is_finished), 0, fewest), drops)

    def _confirm(self, drafted: Any, rows: Rows, state: Any, memory: Any) -> tuple[Any, Rows, Any]:
        """Returns the numbers of tokens by which rows advance [B], the changed variables of rows, and the state."""
        tokens = ops.concatenate([rows["last"][:, None], drafted], axis=1)
        logits, state = self.step(tokens, state, memory)
        columns = ops.arange(ops.shape(tokens)[1], dtype="int32")
        chosen, log_probs, ends = self._choose(logits, rows, rows["length"][:, None] + columns)

        differs = ops.cast(ops.not_equal(chosen[:, :-1], drafted), "int32")
        is_confirmed = ops.equal(ops.cumsum(ops.pad(differs, ((0, 0), (1, 0))), axis=1), 0)
        ends = ops.cast(ops.logical_and(ends, is_confirmed), "int32")
        has_ended = ops.logical_or(ops.cumsum(ends, axis=1) > ends, rows["finished"][:, None])
        if not self.drafts.by_row:  # a row that has ended accepts all tokens
            accepted = ops.cast(ops.logical_or(is_confirmed, has_ended), "int32")
            is_confirmed = ops.logical_and(is_confirmed, columns < ops.min(ops.sum(accepted, axis=1)))

        is_new = ops.logical_and(is_confirmed, ops.logical_not(has_ended))
        counts = ops.sum(ops.cast(is_new, "int32"), axis=1)
        source = self.columns - rows["length"][:, None]
        spread = take_per_row(chosen, ops.clip(source, 0, ops.shape(tokens)[1] - 1))
        is_written = ops.logical_and(source >= 0, source < counts[:, None])
        finished = ops.logical_or(rows["finished"], ops.any(ops.logical_and(ends > 0, is_new), axis=1))
        changes = {
            "ids": ops.where(is_written, spread, rows["ids"]),
            "last": take_per_row(chosen, ops.maximum(counts - 1, 0)[:, None])[:, 0],
            "log_prob": rows["log_prob"] + ops.sum(ops.where(is_new, log_probs, 0.0), axis=1),
            "finished": finished,
            "length": rows["length"] + counts,
        }
        drops = self._drops(ops.shape(tokens)[1] - counts, finished)
        return counts, changes, self.drafts.rewind(state, drops)

    def _choose(self, logits: Any, rows: Rows, positions: Any) -> tuple[Any, Any, Any]:
        """Returns tokens chosen from logits [B, T, V] at positions [B, T], their log probabilities, and which are ends.

        All are [B, T]. Tokens that a constraint requires have the log probability 0.
        """
        batch, num_tokens, size = ops.shape(logits)
        logits = self.constraints.without_early_end(logits, positions[:, :, None])
        logits = ban_special(ops.reshape(logits, (-1, size)), self.special)
        largest, chosen = argmax(logits)
        log_probs = -ops.log(ops.sum(ops.exp(logits - largest), axis=-1))  # of the most probable tokens
        if self.choose is not None:

            def flat(values: Any) -> Any:
                return ops.reshape(ops.broadcast_to(values, (batch, num_tokens)), (-1,))

            variables = {name: flat(rows[name][:, None]) for name in self.variables}
            chosen = self.choose(logits, variables, flat(positions))
            log_probs = log_probs + (take_per_row(logits, chosen[:, None]) - largest)[:, 0]
        chosen = ops.cast(ops.reshape(chosen, (batch, num_tokens)), "int32")
        log_probs = ops.reshape(log_probs, (batch, num_tokens))
        limits = _with_positions(rows)
        chosen, ends, uncounted = self.constrain(chosen, limits, positions)
        chosen = self.special.with_one_end(chosen, ends)
        ends = ops.logical_or(ends, positions + 1 >= limits["max_length"])
        return chosen, ops.where(uncounted, 0.0, log_probs), ends


def _with_positions(rows: Rows) -> Rows:
    """Returns the constraints of rows with an axis for several positions."""
    names = {"max_length", "prompt_length", "finished"} & rows.keys()
    return {**rows, **{name: rows[name][:, None] for name in names}}
