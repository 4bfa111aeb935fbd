"""The base class of the sequence-to-sequence models."""

from zoo.errors import InputError
from zoo.models.shared.base import ZooModel


class Seq2SeqModel(ZooModel):
    """Base of the sequence-to-sequence models.

    A model encodes source ids into a memory, from which it predicts target ids, either all at once (teacher forcing) or
    step by step. Ids are int32, padded with 0 at the end.

    Call arguments:
        inputs: `source` [B, S] and `target` [B, T], a pair or a dict; the target starts with the start token.
        training: Whether dropout is active.

    Returns:
        Logits [B, T, V]: position t predicts the target token after the first t + 1.

    Attributes:
        attends: Whether the model has attention weights.
        can_rewind: Whether `decode_steps` and `rewind` are available, for speculative decoding.
        rewinds_by_row: Whether `rewind` supports a different count for each row.
        shares_vocabulary: Whether a source id and an equal target id are the same token.
    """

    attends = True
    can_rewind = False
    rewinds_by_row = False
    shares_vocabulary = False
    input_names = ("source", "target")
    predicted = "target"

    @property
    def attention_kinds(self):
        """The keys of the result of `attentions`."""
        return ("cross",) if self.attends else ()

    def encode(self, source, training=None):
        """Returns the memory of a source [B, S], a dict of tensors with the batch first."""
        raise NotImplementedError

    def decode(self, target, memory, training=None):
        """Returns logits [B, T, V] and attention weights [B, layers, heads, T, S] under teacher forcing.

        The weights are `None` if the model has no attention.
        """
        raise NotImplementedError

    def initial_state(self, memory, max_length=None, sharing=1):
        """Returns the decoding state before the first step: nested tensors with the batch first, or scalars.

        Args:
            memory: Result of `encode`.
            max_length: Largest number of steps; `None` if tensors of the state may grow from step to step.
            sharing: Number of adjacent rows of the state that share a row of the memory, such as beams.
        """
        raise NotImplementedError

    def decode_step(self, last, state, memory, sharing=1, return_attention_scores=False, readout=None):
        """Computes one step of decoding.

        Args:
            last: The previous target tokens, [B].
            state: Result of `initial_state` or of the previous step.
            memory: Result of `encode`.
            sharing: As in `initial_state`.
            return_attention_scores: Whether to return the attention weights.
            readout: Result of the method `readout`, to compute only the logits of its tokens.

        Returns:
            Logits [B, V] for the next token, or [B, C] with a `readout`; with `return_attention_scores` attention
            weights [B, layers, heads, S]; and the new state.
        """
        raise NotImplementedError

    def decode_steps(self, tokens, state, memory, readout=None):
        """Returns the logits [B, T, V] after each of several tokens of each row, [B, T], and the new state."""
        raise NotImplementedError

    def rewind(self, state, counts):
        """Returns the state without the last tokens of each row, `counts` int32 [B], if the model `can_rewind`.

        They are the same in all rows unless the model `rewinds_by_row`; a count that exceeds the number of tokens
        drops all of them.

        Raises:
            ValueError: If the state is from an `initial_state` with `max_length`.
        """
        raise NotImplementedError

    def readout(self, tokens):
        """Returns an output layer for some target tokens, int32 [C], an argument of `decode_step`.

        Raises:
            InputError: If the model can only compute the logits of all tokens.
        """
        raise InputError(f"{type(self).__name__} computes the logits of all tokens: it does not support shortlists.")

    def call(self, inputs, training=None):
        memory = self.encode(inputs["source"], training=training)
        return self.decode(inputs["target"], memory, training=training)[0]

    def represent(self, source):
        """Returns the contextual vectors [B, S, D] of a source [B, S]; at padding they are arbitrary."""
        raise NotImplementedError

    def embed(self, source):
        """Returns the embeddings [B, S, E] of a source [B, S], without context."""
        return self.source_embedding(source)

    def attentions(self, source, target):
        """Returns the weights of each kind of attention in the model, a dict; see `attention`.

        `cross` is [B, layers, heads, T, S]; those of self-attention, `encoder` and `decoder`, are
        [B, layers, heads, S, S] and [B, layers, heads, T, T].
        """
        return {"cross": self.attention(source, target)} if self.attends else {}

    def attention(self, source, target):
        """Returns the cross-attention weights [B, layers, heads, T, S]; padding has weight 0.

        The target begins with the start token: row t is the attention that predicts the token after position t.

        Raises:
            InputError: If the model has no attention.
        """
        if not self.attends:
            raise InputError(f"{type(self).__name__} has no attention. `rnnsearch` is a similar model with attention.")
        return self.decode(target, self.encode(source))[1]
