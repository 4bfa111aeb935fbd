"""Answers as lines of text."""


def one_line(answer: bytes) -> bytes:
    """Returns an answer on one line: line breaks in it become spaces, so that there are as many lines as answers."""
    return b" ".join(answer.splitlines())
