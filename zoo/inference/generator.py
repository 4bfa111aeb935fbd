"""A language model together with its decoding: ids of prompts in, ids of whole texts out."""

from typing import Any

from keras import ops

from zoo import decoding
from zoo.decoding_options import GenerationOptions
from zoo.inference.decoders import SYMBOLS, Decoder, Wrapper, shifted


class TextScorer(Wrapper):
    """How probable texts are to a language model.

    Args:
        model: A `LanguageModel`.

    Call arguments:
        inputs: Dict with `tokens` [B, T], int32, padded with 0 at the end, T from 1 to the model's `max_length`.

    Returns:
        The log probability of each text, float32 [B].
    """

    def logits(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Returns logits [B, T, V] and the symbols that they are of, [B, T]."""
        tokens = inputs["tokens"]
        return self.model({"tokens": shifted(tokens)}, training=False), tokens

    def call(self, inputs: dict[str, Any]) -> Any:
        return decoding.sequence_log_prob(*self.logits(inputs), SYMBOLS)


class Generator(Decoder):
    """Prompts to texts, the same code in evaluation and in the exported graph.

    Args:
        model: A `LanguageModel`.
        options: How it is decoded, a `GenerationOptions`. Default: with all defaults.
        resizes: Whether rows that are done leave the loop; see `zoo.decoding`. Default: where the backend can do that.

    Call arguments:
        inputs: Dict with `prompt` [B, P], int32, padded with 0 at the end, P from 1 to `max_length`; and where symbols
            are drawn `seed` [B] and `row` [B], int32 (see `decoding.sample`).

    Returns:
        Dict with `ids` [B, max_length], the prompt included, padded, and `log_prob` [B], float32, of what follows it.

    Attributes:
        options: The options, resolved for the model.

    Raises:
        InputError: If the model cannot be decoded like this.
    """

    options: GenerationOptions
    options_class = GenerationOptions

    def search(self, inputs: dict[str, Any]) -> dict[str, Any]:
        options, prompt = self.options, inputs["prompt"]
        batch = ops.shape(prompt)[0]
        limits = ops.full((batch,), options.max_length, dtype="int32")
        search: dict[str, Any] = {
            "step": lambda last, state, memory: self.model.decode_step(last, state),
            "state": self.model.initial_state(batch, None if self.resizes else options.max_length),
            "constraints": decoding.Constraints(SYMBOLS, limits, options.max_length, prompt, options.no_repeat_ngram),
            "resizes": self.resizes,
        }
        if options.temperature:
            draws: dict[str, Any] = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
            ids, log_prob = decoding.sample(**search, seeds=inputs["seed"], row_numbers=inputs["row"], **draws)
        else:
            ids, log_prob = decoding.greedy_search(**search)
        return {"ids": ids, "log_prob": log_prob}
