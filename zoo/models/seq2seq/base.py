"""The interface of every sequence-to-sequence model, for training, decoding and export."""

from zoo.errors import InputError
from zoo.models.shared.base import ZooModel


class Seq2SeqModel(ZooModel):
    """Base of the sequence-to-sequence models.

    A model encodes source ids into a memory once, and from it predicts target ids, either all at once (teacher forcing)
    or one step after another. Ids are int32, padded with 0 at the end.

    Call arguments:
        inputs: `source` [B, S] and `target` [B, T], a pair or a dict; the target starts with the start token.
        training: Whether dropout is active.

    Returns:
        Logits [B, T, V]: position t predicts the target token after the first t + 1.

    Attributes:
        attends: Whether the model has attention weights.
        can_rewind: Whether `decode_steps` and `rewind` are available, for speculative decoding.
        shares_vocabulary: Whether a source id and an equal target id are the same token.
    """

    attends = True
    can_rewind = False
    shares_vocabulary = False
    input_names = ("source", "target")
    predicted = "target"

    @property
    def attention_kinds(self):
        """The keys of what `attentions` returns."""
        return ("cross",) if self.attends else ()

    def encode(self, source, training=None):
        """Returns the memory of a source [B, S], a dict of tensors with the batch first."""
        raise NotImplementedError

    def decode(self, target, memory, training=None):
        """Returns logits [B, T, V] and attention weights [B, layers, heads, T, S] under teacher forcing.

        The weights are `None` where the model does not attend.
        """
        raise NotImplementedError

    def initial_state(self, memory, max_length=None, sharing=1):
        """Returns the decoding state before the first step: nested tensors, batch first, or scalars.

        At most `max_length` steps follow, `None` where tensors of the state may grow from step to step. The rows that
        share a row of the memory, `sharing` of them, are adjacent.
        """
        raise NotImplementedError

    def decode_step(self, last, state, memory, sharing=1, return_attention_scores=False, readout=None):
        """Returns logits [B, V] for the next token, if asked for the attention [B, layers, heads, S], and the state.

        The last tokens are [B]; the state is from `initial_state` or the step before, and the memory from `encode`.
        With a `readout`, from the method of that name, logits are those of its tokens alone, [B, C].
        """
        raise NotImplementedError

    def decode_steps(self, tokens, state, memory, readout=None):
        """Reads several tokens of each row, [B, T]; returns logits [B, T, V] for those after each, and the state."""
        raise NotImplementedError

    def rewind(self, state, count):
        """Returns the state before the last `count` tokens.

        Raises:
            ValueError: If the state does not contain that.
        """
        raise NotImplementedError

    def readout(self, tokens):
        """Returns what `decode_step` needs to give the logits of some target tokens, int32 [C], and of no others.

        Raises:
            InputError: If the model's logits cannot be had one by one.
        """
        raise InputError(f"{type(self).__name__} gives the logits of all tokens or none: it takes no shortlist.")

    def call(self, inputs, training=None):
        memory = self.encode(inputs["source"], training=training)
        return self.decode(inputs["target"], memory, training=training)[0]

    def represent(self, source):
        """Returns the contextual vectors of a source [B, S], [B, S, D]; those of padding may be anything."""
        raise NotImplementedError

    def embed(self, source):
        """Returns the vectors of a source [B, S] that know no context, [B, S, E]."""
        return self.source_embedding(source)

    def attentions(self, source, target):
        """Returns the weights of each kind of attention that the model has, a dict; see `attention`.

        `cross` is [B, layers, heads, T, S]; those of self-attention, `encoder` and `decoder`, are
        [B, layers, heads, S, S] and [B, layers, heads, T, T].
        """
        return {"cross": self.attention(source, target)} if self.attends else {}

    def attention(self, source, target):
        """Returns the cross-attention weights [B, layers, heads, T, S]; padding has weight 0.

        The target begins with the start token: row t is the attention that predicts its successor.

        Raises:
            InputError: If the model does not attend.
        """
        if not self.attends:
            raise InputError(f"{type(self).__name__} has no attention. `rnnsearch` is a model like it that has.")
        return self.decode(target, self.encode(source))[1]
