"""The tokens of a tokenizer that end sentences."""

from zoo.text.base import Tokenizer
from zoo.vocabulary import SPECIAL_PIECES

_LINE_BREAK = "U+000A"
_END_MARKS = (".", "!", "?", "…", "。", "！", "？", "؟", "।")
_CLOSING_MARKS = "\"'”’»)]"


def sentence_ends(tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of the tokens that end a sentence: a full stop, `!`, `?` or similar marks, or a line break.

    Quotation marks and brackets may follow in the same token. Abbreviations are not recognized: in "Mr. Smith", the
    full stop ends a sentence.

    Example:
        >>> from zoo.text import CharTokenizer, sentence_ends
        >>> sentence_ends(CharTokenizer("a.b?"))
        [5, 7]
    """
    pieces = [piece.rstrip(_CLOSING_MARKS) for piece in tokenizer.piece_table()]
    ordinary = range(len(SPECIAL_PIECES), len(pieces))
    return [i for i in ordinary if pieces[i].endswith(_END_MARKS) or pieces[i] == _LINE_BREAK]
