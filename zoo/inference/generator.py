"""A language model with its decoding, from ids of prompts to ids of whole texts."""

import dataclasses
from typing import Any

from keras import ops

from zoo import decoding
from zoo.decoding_options import GenerationOptions
from zoo.errors import InputError
from zoo.inference.decoders import TOKENS, Decoder, Wrapper, rewind_by_row, shifted
from zoo.vocabulary import PAD, START


def constraints(model: Any, prompt: Any, max_length: int, no_repeat_ngram: int) -> decoding.Constraints:
    """Returns the decoding constraints of a language model for prompts [B, P], padded with 0."""
    if not model.start_symbol:
        is_empty = ops.logical_and(ops.equal(prompt, PAD), ops.equal(ops.arange(ops.shape(prompt)[1]), 0))
        prompt = ops.where(is_empty, START, prompt)
    limits = ops.full((ops.shape(prompt)[0],), max_length, dtype="int32")
    special = dataclasses.replace(TOKENS, other_ends=tuple(model.other_end_ids))
    num_begun = int(not model.start_symbol)
    return decoding.Constraints(special, limits, max_length, prompt, no_repeat_ngram, num_begun)


def read_prompts(model: Any, state: Any, constraints: decoding.Constraints) -> tuple[Any, decoding.Constraints]:
    """Reads the first tokens of prompts, as many as the shortest prompt has, in one call instead of step by step.

    Returns:
        The new state and constraints; unchanged if the model reads one token at a time.
    """
    if not model.can_rewind:
        return state, constraints
    prompt, lengths = constraints.prompt, constraints.by_row()["prompt_length"]
    shortest = ops.min(ops.append(lengths, ops.minimum(ops.shape(prompt)[1], constraints.capacity)))
    if model.start_symbol:
        prompt = ops.pad(prompt, ((0, 0), (1, 0)), constant_values=START)
    state = model.read(prompt[:, : shortest - constraints.num_begun], state)
    return state, dataclasses.replace(constraints, num_begun=shortest)


def drafts(model: Any, batch: Any, length: int, draft: Any = None) -> decoding.Drafts | None:
    """Returns the `Drafts` for a language model, `None` for length 0.

    The model `draft` drafts tokens, if there is one; otherwise they are looked up in prompts and continuations.
    """
    if not length:
        return None
    draft_model = None
    if draft is not None:
        draft_model = decoding.DraftModel(
            lambda tokens, state, memory: draft.prefill(tokens, state),
            draft.rewind,
            draft.initial_state(batch),
            memory={},
            reads_start=draft.start_symbol,
        )
    return decoding.Drafts(
        lambda tokens, state, memory: model.decode_steps(tokens, state),
        model.rewind,
        length,
        context=ops.zeros((batch, 0), dtype="int32"),
        model=draft_model,
        by_row=rewind_by_row(model, draft),
    )


class TextScorer(Wrapper):
    """The log probabilities of texts by a language model.

    Args:
        model: A `LanguageModel`.

    Call arguments:
        inputs: Dict with `tokens` [B, T], int32, padded with 0 at the end, T from 1 to the model's `max_length`. The
            optional `before` [B, T] contains the token before each of them; by default the start, then `tokens`.

    Returns:
        The log probability of each text, float32 [B]; without `start_symbol`, its first token does not count.
    """

    def logits(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Returns logits [B, T, V] and the tokens that they predict, [B, T]."""
        tokens = inputs["tokens"]
        if "before" in inputs:
            return self.model({"tokens": inputs["before"]}, training=False), tokens
        if not self.model.start_symbol:
            following = ops.concatenate([tokens[:, 1:], ops.full_like(tokens[:, :1], PAD)], axis=1)
            return self.model({"tokens": tokens}, training=False), following
        return self.model({"tokens": shifted(tokens)}, training=False), tokens

    def call(self, inputs: dict[str, Any]) -> Any:
        return decoding.sequence_log_prob(*self.logits(inputs), TOKENS)


class Generator(Decoder):
    """Generates texts from prompts, with the same code in evaluation and in the exported graph.

    Args:
        model: A `LanguageModel`.
        options: The decoding options, a `GenerationOptions`. Default: the default of each.
        resizes: Whether finished rows leave the loop; see `zoo.decoding`. Default: if the backend supports it.
        draft: A `LanguageModel` with the same tokens that drafts them, if the option `draft_length` is not 0 and
            finished rows leave the loop. Default: they are looked up.

    Call arguments:
        inputs: Dict with `prompt` [B, P], int32, padded with 0 at the end, P from 1 to `max_length`; for sampling, also
            `seed` [B] and `row` [B], int32 (see `decoding.sample`).

    Returns:
        Dict with `ids` [B, max_length], including the prompt, padded, and `log_prob` [B], float32, of the continuation.

    Attributes:
        options: The options, resolved for the model.

    Raises:
        InputError: If the model or the draft model does not support the options.
    """

    options: GenerationOptions
    options_class = GenerationOptions

    def __init__(self, model: Any, options: Any = None, resizes: bool | None = None, draft: Any = None) -> None:
        super().__init__(model, options, resizes, draft)
        if self.draft is not None and self.options.max_length > self.draft.max_length:
            raise InputError(
                f"`max_length` must be at most {self.draft.max_length}, that of the draft model. "
                f"Received: max_length={self.options.max_length}."
            )

    def search(self, inputs: dict[str, Any]) -> dict[str, Any]:
        options, prompt = self.options, inputs["prompt"]
        batch = ops.shape(prompt)[0]
        state = self.model.initial_state(batch, None if self.resizes else options.max_length)
        limited = constraints(self.model, prompt, options.max_length or 1, options.no_repeat_ngram)
        if self.resizes:
            state, limited = read_prompts(self.model, state, limited)
        search: dict[str, Any] = {
            "step": lambda last, state, memory: self.model.decode_step(last, state),
            "state": state,
            "constraints": limited,
            "resizes": self.resizes,
            "drafts": drafts(self.model, batch, options.draft_length, self.draft) if self.resizes else None,
        }
        if options.temperature:
            draws: dict[str, Any] = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
            ids, log_prob = decoding.sample(**search, seeds=inputs["seed"], row_numbers=inputs["row"], **draws)
        else:
            ids, log_prob = decoding.greedy_search(**search)
        return {"ids": ids, "log_prob": log_prob}
