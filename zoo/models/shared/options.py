"""Options of all models of a task. Without Keras, because the catalog imports them."""

from dataclasses import MISSING, dataclass
from typing import ClassVar

from zoo.errors import InputError
from zoo.options import Options, choice, flag, rate, size

POOLINGS = ("mean", "max", "attention", "first")


@dataclass(frozen=True, kw_only=True)
class Seq2SeqOptions(Options):
    """Options of every sequence-to-sequence model; some require `one_vocabulary` of source and target."""

    one_vocabulary: ClassVar[bool] = False

    source_vocab_size: int = size(MISSING, "Number of source tokens.")
    target_vocab_size: int = size(MISSING, "Number of target tokens.")

    def check_shared_vocabulary(self) -> None:
        """Checks that both sides have one vocabulary, which `tied_embeddings="all"` requires.

        Raises:
            InputError: If their sizes differ.
        """
        if self.source_vocab_size != self.target_vocab_size:
            raise InputError(
                "`tied_embeddings='all'` requires one shared vocabulary; use 'target' for separate ones. Received: "
                f"source_vocab_size={self.source_vocab_size}, target_vocab_size={self.target_vocab_size}."
            )


@dataclass(frozen=True, kw_only=True)
class TextEncoderOptions(Options):
    """Options of every model that computes one vector for a text."""

    vocab_size: int = size(MISSING, "Number of tokens.")
    pooling: str = choice(
        "mean",
        POOLINGS,
        "How the vector of a text is computed from those of its tokens; attention: a weighted mean; first: the vector "
        "of the first token.",
    )
    dropout: float = rate(0.0, "Rate of dropout on the vector of the text.")
    embedding_dropout: float = rate(0.0, "Rate of dropout on the embeddings alone, before any positions.")
    word_dropout: float = rate(0.0, "Fraction of the tokens that are replaced by the unknown token in training.")
    pooling_dropout: float = rate(
        0.0,
        "Fraction of the tokens that pooling ignores in training, so that the class does not depend on the vector of a "
        "single token.",
    )


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(TextEncoderOptions):
    """Options of every classifier."""

    num_classes: int = size(MISSING, "Number of classes, C.")


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(Options):
    """Options of every language model."""

    vocab_size: int = size(MISSING, "Number of tokens.")
    max_length: int = size(
        257, "Largest number of tokens in a text, the start token included; rows of a table of learned positions."
    )
    start_symbol: bool = flag(
        True,
        "Whether texts to continue, score or explore begin with the start token. If not, their first token has no "
        "probability, and the start token represents an empty text.",
    )
