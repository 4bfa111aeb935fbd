"""The base class of classifiers and sentence encoders, which read a whole text."""

from collections.abc import Sequence
from typing import NamedTuple

from zoo.inference.answers import TextAttention
from zoo.inference.base_run import Run, as_texts, read_texts
from zoo.text import Tokenizer


class Tokenizers(NamedTuple):
    """The tokenizer of a model with one text as input."""

    text: Tokenizer


class TextEncoderRun(Run):
    """Base of the runs whose model reads a whole text."""

    tokenizers: Tokenizers
    tokenizers_type = Tokenizers

    @property
    def text_length(self) -> int:
        """Maximum number of tokens of a text, including start and end; longer texts are cut."""
        raise NotImplementedError

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Run`; the ids include the end, and the start if the tokenizer has one."""
        texts = as_texts(texts)
        return read_texts(self.tokenizers.text, texts, self.text_length)

    def attention(self, texts: Sequence[str], kind: str = "encoder") -> list[TextAttention]:
        """Returns the tokens of each text and the attention between them.

        Args:
            texts: The texts.
            kind: `"encoder"`, the only one that these models have.

        Returns:
            A list of `(tokens, weights)` with weights [layers, heads, S, S].

        Raises:
            InputError: If the model has no such attention, or `texts` is one string.
        """
        self._check_kind(kind)
        return self._attention_of(self.model.attention, texts)
