"""A language model together with its decoding: ids of prompts in, ids of whole texts out."""

import keras
from keras import ops

from zoo import decoding
from zoo.errors import InputError, check_finite, check_whole
from zoo.inference.translator import SYMBOLS, shifted
from zoo.models.shared.embeddings import transposed_tables


class TextScorer(keras.Model):
    """How probable texts are to a language model.

    Args:
        model: A `LanguageModel`.

    Call arguments:
        inputs: Dict with `tokens` [B, T], int32, padded with 0 behind, T from 1 to the model's `max_length`.

    Returns:
        The log probability of each text, float32 [B].
    """

    def __init__(self, model, **kwargs):
        super().__init__(dtype=model.dtype_policy, **kwargs)
        self.model = model
        self.built = True

    def call(self, inputs):
        tokens = inputs["tokens"]
        return decoding.sequence_log_prob(self.model({"tokens": shifted(tokens)}, training=False), tokens, SYMBOLS)


class Generator(keras.Model):
    """Prompts to texts, the same code in evaluation and in the exported graph.

    Args:
        model: A `LanguageModel`.
        temperature: Divides the logits before symbols are drawn; 0 takes the most probable symbol.
        top_k: Draw among this many most probable symbols only; 0 for all.
        top_p: Draw among the fewest symbols that together have this probability, in (0, 1].
        max_length: Largest number of symbols, those of the prompt included, at most the model's `max_length`.
        no_repeat_ngram: No n symbols come twice, those of the prompt included; 0 for no such rule.
        resizes: Whether rows that are done leave the loop; see `zoo.decoding`. Default: where the backend can do that.

    Call arguments:
        inputs: Dict with `prompt` [B, P], int32, padded with 0 behind, P from 1 to `max_length`; and where symbols are
            drawn `seed` [B] and `row` [B], int32 (see `decoding.sample`).

    Returns:
        Dict with `ids` [B, max_length], the prompt included, padded, and `log_prob` [B], float32, of what follows it.
    """

    def __init__(
        self,
        model,
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        max_length=None,
        no_repeat_ngram=0,
        resizes=None,
        **kwargs,
    ):
        super().__init__(dtype=model.dtype_policy, **kwargs)
        check_finite(temperature=temperature, top_p=top_p)
        check_whole(top_k=top_k, no_repeat_ngram=no_repeat_ngram)
        if max_length is not None:
            check_whole(max_length=max_length)
        if temperature < 0:
            raise InputError(f"`temperature` must be 0 or more. Received: temperature={temperature}.")
        if top_k < 0:
            raise InputError(f"`top_k` must be 0 or more. Received: top_k={top_k}.")
        if no_repeat_ngram < 0:
            raise InputError(f"`no_repeat_ngram` must be 0 or more. Received: no_repeat_ngram={no_repeat_ngram}.")
        if not 0 < top_p <= 1:
            raise InputError(f"`top_p` must be in (0, 1]. Received: top_p={top_p}.")
        if max_length is not None and not 1 <= max_length <= model.max_length:
            raise InputError(f"`max_length` must be from 1 to {model.max_length}. Received: max_length={max_length}.")
        self.model = model
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.no_repeat_ngram = no_repeat_ngram
        self.resizes = decoding.can_resize() if resizes is None else resizes
        self.max_length = model.max_length if max_length is None else max_length
        self.built = True

    def call(self, inputs):
        with transposed_tables(self.model):
            return self._search(inputs)

    def _search(self, inputs):
        prompt = inputs["prompt"]
        batch = ops.shape(prompt)[0]
        limits = ops.full((batch,), self.max_length, dtype="int32")
        search = {
            "step": lambda last, state, memory: self.model.decode_step(last, state),
            "state": self.model.initial_state(batch, None if self.resizes else self.max_length),
            "constraints": decoding.Constraints(SYMBOLS, limits, self.max_length, prompt, self.no_repeat_ngram),
            "resizes": self.resizes,
        }
        if self.temperature:
            draws = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
            ids, log_prob = decoding.sample(**search, seeds=inputs["seed"], row_numbers=inputs["row"], **draws)
        else:
            ids, log_prob = decoding.greedy_search(**search)
        return {"ids": ids, "log_prob": log_prob}
