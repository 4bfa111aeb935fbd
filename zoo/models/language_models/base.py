"""The interface of every causal language model, for training, decoding and export."""

from keras import ops

from zoo.models.shared.base import ZooModel


class LanguageModel(ZooModel):
    """Base of the causal language models.

    A model predicts each token from those before it, either all at once or one step after another. Ids are int32,
    padded with 0 at the end; every row begins with the start token, unless the model has no `start_symbol`.

    Call arguments:
        inputs: `tokens` [B, T], T ≤ `max_length`, an array or a dict.
        training: Whether dropout is active.

    Returns:
        Logits [B, T, V]: position t predicts the token after the first t + 1.

    Attributes:
        attention_kinds: The keys of what `attentions` returns.
        start_symbol: Whether a text begins with the start token.
        other_end_ids: Further tokens that end a text; in answers they are the end.
        can_rewind: Whether `read`, `decode_steps` and `rewind` are available, for prompts and speculative decoding.
    """

    predicted = "tokens"
    attention_kinds: tuple[str, ...] = ()
    start_symbol = True
    other_end_ids: tuple[int, ...] = ()
    can_rewind = False

    def represent(self, tokens):
        """Returns the vectors of tokens [B, T] that know those before them, [B, T, D]."""
        raise NotImplementedError

    def embed(self, tokens):
        """Returns the vectors of tokens [B, T] that know no context, [B, T, E]."""
        return self.embedding(tokens)

    def attentions(self, tokens):
        """Returns the weights of each kind of attention that the model has, a dict: `decoder` or nothing.

        `decoder` is [B, layers, heads, T, T]: row t is the attention that predicts the token after position t.
        """
        return {}

    def initial_state(self, batch_size, max_length=None):
        """Returns the decoding state before the first step: nested tensors, batch first, or scalars.

        The batch size may be a scalar tensor. At most `max_length` steps follow, `None` where tensors of the state may
        grow from step to step.
        """
        raise NotImplementedError

    def prefill(self, tokens, state):
        """Reads the same number of tokens of each row at once, [B, T], none of them padding.

        For rows of different lengths that is the length of the shortest one; `decode_step` reads the rest.

        Returns:
            Logits [B, V] for the token after them, and the new state.
        """
        raise NotImplementedError

    def read(self, tokens, state):
        """Reads tokens as `prefill` does, but possibly none, T ≥ 0, and returns the new state alone."""
        raise NotImplementedError

    def decode_steps(self, tokens, state):
        """Reads tokens as `prefill` does, and returns logits [B, T, V] for the token after each, and the new state."""
        raise NotImplementedError

    def rewind(self, state, count):
        """Returns the state before the last `count` tokens.

        Raises:
            ValueError: If the state does not contain that.
        """
        raise NotImplementedError

    def decode_step(self, last, state):
        """Returns logits [B, V] for the token after the last one of each row, [B], and the new state."""
        return self.prefill(ops.expand_dims(last, 1), state)
