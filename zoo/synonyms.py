"""Common synonyms of scores and models, which are accepted or lead to suggestions in error messages."""

import fnmatch
from collections.abc import Iterable, Mapping

SCORES: dict[str, tuple[str, ...]] = {
    "bahdanau": ("additive",),
    "mlp": ("additive",),
    "multiplicative": ("general",),
    "bilinear": ("general",),
    "luong": ("dot", "general", "concat"),
    "dot_product": ("dot",),
    "vaswani": ("scaled_dot",),
    "scaled_dot_product": ("scaled_dot",),
    "cosine_similarity": ("cosine",),
}
# Patterns of names, as in `fnmatch`.
MODELS: dict[str, tuple[str, ...]] = {
    "bahdanau": ("rnnsearch",),
    "additive": ("rnnsearch", "*_additive"),
    "luong": ("luong_*",),
    "multiplicative": ("luong_general",),
    "bilinear": ("luong_general",),
    "vaswani": ("transformer_tiny", "transformer_small", "transformer_base", "transformer_big"),
    "cho": ("rnn_encdec",),
    "sutskever": ("rnn_encdec",),
    "seq2seq": ("rnn_encdec", "rnnsearch", "luong_*"),
}


def meant_by(name: object, synonyms: Mapping[str, tuple[str, ...]], known: Iterable[str]) -> list[str]:
    """Returns the known names that a synonym may mean, in the order of its patterns; empty for other names."""
    patterns = synonyms.get(str(name).lower().replace("-", "_").replace(" ", "_"), ())
    known = sorted(known)
    return [match for pattern in patterns for match in fnmatch.filter(known, pattern)]


def unique(synonyms: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Returns the synonyms that mean a single name, with that name."""
    return {name: meanings[0] for name, meanings in synonyms.items() if len(meanings) == 1}
