"""The base class of the causal language models."""

from keras import ops

from zoo.models.shared.base import ZooModel


class LanguageModel(ZooModel):
    """Base of the causal language models.

    A model predicts each token from the previous ones, either for all positions at once or step by step. Ids are int32,
    padded with 0 at the end; every row begins with the start token, unless the model has no `start_symbol`.

    Call arguments:
        inputs: `tokens` [B, T], T ≤ `max_length`, an array or a dict.
        training: Whether dropout is active.

    Returns:
        Logits [B, T, V]: position t predicts the token after the first t + 1.

    Attributes:
        attention_kinds: The keys of the result of `attentions`.
        start_symbol: Whether a text begins with the start token.
        other_end_ids: Further tokens that end a text; decoding replaces them by the end token.
        can_rewind: Whether `read`, `decode_steps` and `rewind` are available, for prompts and speculative decoding.
        rewinds_by_row: Whether `rewind` supports a different count for each row.
    """

    predicted = "tokens"
    attention_kinds: tuple[str, ...] = ()
    start_symbol = True
    other_end_ids: tuple[int, ...] = ()
    can_rewind = False
    rewinds_by_row = False

    def represent(self, tokens):
        """Returns contextual vectors [B, T, D] of tokens [B, T]."""
        raise NotImplementedError

    def embed(self, tokens):
        """Returns the embeddings [B, T, E] of tokens [B, T], without context."""
        return self.embedding(tokens)

    def attentions(self, tokens):
        """Returns the weights of each kind of attention in the model, a dict: `decoder` or nothing.

        `decoder` is [B, layers, heads, T, T]: row t is the attention that predicts the token after position t.
        """
        return {}

    def initial_state(self, batch_size, max_length=None):
        """Returns the decoding state before the first step: nested tensors with the batch first, or scalars.

        Args:
            batch_size: B, an integer or a scalar tensor.
            max_length: Largest number of steps; `None` if tensors of the state may grow from step to step.
        """
        raise NotImplementedError

    def prefill(self, tokens, state):
        """Reads several tokens of each row at once.

        Args:
            tokens: [B, T] without padding: of rows of different lengths, as many tokens as the shortest one has;
                `decode_step` reads the others.
            state: The state before them.

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

    def rewind(self, state, counts):
        """Returns the state without the last tokens of each row, `counts` int32 [B], if the model `can_rewind`.

        They are the same in all rows unless the model `rewinds_by_row`; a count that exceeds the number of tokens
        drops all of them.

        Raises:
            ValueError: If the state is from an `initial_state` with `max_length`.
        """
        raise NotImplementedError

    def decode_step(self, last, state):
        """Reads one token of each row, [B]; returns logits [B, V] for the next token, and the new state."""
        return self.prefill(ops.expand_dims(last, 1), state)
