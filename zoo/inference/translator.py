"""A sequence-to-sequence model with its decoding, from source ids to target ids."""

import functools
from typing import Any

from keras import ops

from zoo import decoding
from zoo.decoding_options import TranslationOptions
from zoo.errors import InputError
from zoo.inference.decoders import TOKENS, Decoder, Wrapper, rewind_by_row, shifted
from zoo.inference.shortlist import Shortlist, check_readout
from zoo.row_selection import take
from zoo.vocabulary import PAD

MIN_LENGTHS = {"ctranslate2": 1}
"""The minimum number of tokens before the end, by the rules of other libraries."""

LEAST_LOG_PROB = -1e29
"""Log probabilities below this mark missing sequences of a search that found fewer sequences than it has beams."""


class Scorer(Wrapper):
    """The log probabilities of target ids, given source ids.

    Args:
        model: A `Seq2SeqModel`.
        forced: Length of the forced prefix of each target, whose log probability is not counted.

    Call arguments:
        inputs: Dict with `source` [B, S] and `target` [B, T], int32, each with its end and then padded with 0.

    Returns:
        The log probability of each target, float32 [B].
    """

    def __init__(self, model: Any, forced: int = 0) -> None:
        super().__init__(model)
        self.forced = forced

    def logits(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Returns logits [B, T, V] and the tokens that they predict, [B, T]."""
        source, target = inputs["source"], inputs["target"]
        return self.model({"source": source, "target": shifted(target)}, training=False), target

    def call(self, inputs: dict[str, Any]) -> Any:
        logits, target = self.logits(inputs)
        return decoding.sequence_log_prob(logits[:, self.forced :], target[:, self.forced :], TOKENS)


def _draft_model(model: Any, source: Any) -> decoding.DraftModel:
    """Returns a model that drafts translations of source ids [B, S]."""

    def read(tokens: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        logits, state = model.decode_steps(tokens, state, memory)
        return logits[:, -1], state

    memory = model.encode(source, training=False)
    return decoding.DraftModel(read, model.rewind, model.initial_state(memory), memory)


class Translator(Decoder):
    """Translates source ids to target ids, with the same code in evaluation and in the exported graph.

    Args:
        model: A `Seq2SeqModel`.
        options: The decoding options, a `TranslationOptions`. Default: the default of each.
        resizes: Whether finished rows leave the loop; see `zoo.decoding`. Default: if the backend supports it.
        shortlist: The table that selects target tokens; required unless the option `shortlist` is 0.
        draft: A `Seq2SeqModel` with the same tokens that drafts them, if the option `draft_length` is not 0 and
            finished rows leave the loop. Default: they are looked up.

    Call arguments:
        inputs: Dict with `source` [B, S], int32, padded with 0 at the end; optionally `prefix` [B, P], likewise, with
            which the translations begin, and `memory`, the encoded source.

    Returns:
        Dict with `ids` [B, K, L], padded, best first, and `log_prob` [B, K], float32, of the tokens after the prefix; K
        is `nbest`.

    Attributes:
        options: The options, resolved for the model.

    Raises:
        InputError: If the model or the draft model does not support the options.
    """

    options: TranslationOptions
    options_class = TranslationOptions

    def __init__(
        self,
        model: Any,
        options: Any = None,
        resizes: bool | None = None,
        shortlist: Shortlist | None = None,
        draft: Any = None,
    ) -> None:
        super().__init__(model, options, resizes, draft)
        self.shortlist = shortlist if self.options.shortlist else None
        if self.options.shortlist:
            if shortlist is None:
                raise InputError("The option `shortlist` requires the argument `shortlist`. Received: shortlist=None.")
            check_readout(model)

    @property
    def _penalizes_coverage(self) -> bool:
        return self.options.beam_size > 1 and self.options.coverage_penalty > 0

    def _constraints(self, source: Any, prefix: Any) -> decoding.Constraints:
        longest = self.options.max_length
        lengths = ops.sum(ops.cast(ops.not_equal(source, PAD), "int32"), axis=1)
        if self.options.rules == "gnmt":
            capacity = 2 * ops.shape(source)[1] + 10
            capacity = min(capacity, longest) if isinstance(capacity, int) else ops.minimum(capacity, longest)
            limits = ops.minimum(2 * lengths + 10, longest)
        else:
            capacity, limits = longest, ops.full_like(lengths, longest)
        limits = ops.where(lengths > 0, limits, 0)  # The translation of an empty source is empty.
        return decoding.Constraints(
            TOKENS,
            limits,
            capacity,
            prefix,
            self.options.no_repeat_ngram,
            min_length=MIN_LENGTHS.get(self.options.rules, 0),
            forces_end=self.options.force_end,
        )

    def _step(self, last: Any, state: Any, memory: Any, **readout: Any) -> tuple[Any, ...]:
        logits, *attention, state = self.model.decode_step(
            last,
            state,
            memory,
            sharing=self.options.beam_size,
            return_attention_scores=self._penalizes_coverage,
            **readout,
        )
        return logits, *(ops.mean(weights, axis=(1, 2)) for weights in attention), state

    def _step_among(self, tokens: Any, readout: Any, last: Any, state: Any, memory: Any) -> tuple[Any, ...]:
        """Runs `_step` for tokens that are represented by their positions in a shortlist."""
        return self._step(take(tokens, last), state, memory, readout=readout)

    def _drafts(self, source: Any) -> decoding.Drafts | None:
        if not self.options.draft_length or not self.resizes:
            return None
        context = source if self.model.shares_vocabulary else source[:, :0]
        model = None if self.draft is None else _draft_model(self.draft, source)
        return decoding.Drafts(
            self.model.decode_steps,
            self.model.rewind,
            self.options.draft_length,
            context,
            model,
            rewind_by_row(self.model, self.draft),
        )

    def search(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if self.shortlist is None:
            return self._search(inputs, self._step)
        # The special tokens are the first of every shortlist, so their positions are their ids.
        tokens = self.shortlist.candidates(inputs["source"], self.options.shortlist)
        step = functools.partial(self._step_among, tokens, self.model.readout(tokens))
        results = self._search(inputs, step)
        return {**results, "ids": take(tokens, results["ids"])}

    def _search(self, inputs: dict[str, Any], step: Any) -> dict[str, Any]:
        source, options = inputs["source"], self.options
        constraints = self._constraints(source, inputs.get("prefix"))
        memory = inputs.get("memory")
        if memory is None:
            memory = self.model.encode(source, training=False)
        state = self.model.initial_state(memory, None if self.resizes else constraints.capacity, options.beam_size)
        search: dict[str, Any] = {
            "step": step,
            "state": state,
            "constraints": constraints,
            "memory": memory,
            "resizes": self.resizes,
        }
        if options.beam_size == 1:
            ids, log_prob = decoding.greedy_search(**search, drafts=self._drafts(source))
            return {"ids": ids[:, None], "log_prob": log_prob[:, None]}
        penalties: dict[str, Any] = {"alpha": options.length_penalty, "rules": options.rules}
        if self._penalizes_coverage:
            penalties |= {"beta": options.coverage_penalty, "source_mask": ops.not_equal(source, PAD)}
        ids, log_prob = decoding.beam_search(**search, **penalties, beam_size=options.beam_size, nbest=options.nbest)
        return {"ids": ids, "log_prob": log_prob}
