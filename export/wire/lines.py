"""Outputs as lines of text."""


def one_line(answer: bytes) -> bytes:
    """Returns an answer as one line: its line breaks are replaced by spaces."""
    return b" ".join(answer.splitlines())
