"""The figures in the order in which they are measured, the most important first."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.gpu.figure import JAX, OURS, TORCH, Figure

TORCH_COMPILED = "PyTorch, compiled"
SDPA, FLEX = "torch SDPA", "torch FlexAttention"
CUDNN, XLA = "jax.nn, cuDNN", "jax.nn, XLA"
FIRST_STEP, PROFILE = "first step", "profile"

_TURNS = {"warm_up": 10, "turns": 60, "groups": 3}
_FEW = {"warm_up": 2, "turns": 12, "groups": 3}
_TRANSLATION = {
    "batch": 512,
    "source_length": 64,
    "target_length": 64,
    "vocabulary": 32_000,
    "precision": "bfloat16",
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "threads": 1,
    **_TURNS,
}
_TRANSLATORS = {
    "transformer_base": {"layers": 6, "dim": 512, "hidden": 2048, "heads": 8},
    "transformer_big": {"layers": 6, "dim": 1024, "hidden": 4096, "heads": 16},
}
_LANGUAGE_MODEL = {
    "batch": 32,
    "target_length": 1024,
    "vocabulary": 50_304,
    "precision": "bfloat16",
    "label_smoothing": 0.0,
    "layers": 12,
    "dim": 768,
    "hidden": 2048,
    "heads": 12,
    **_TURNS,
}
_BLOCKS = {"layers": 6, "dim": 512, "hidden": 2048, "heads": 8, "precision": "bfloat16", **_TURNS}
# About 32,768 positions each.
_LAYOUTS = {
    "packed, Segments": {"layout": "packed", "rows": 128, "width": 256},
    "padded": {"layout": "padded", "rows": 607, "width": 54},
    "padded, sorted by length": {"layout": "sorted", "rows": 1366, "width": 24},
}
_ATTENTION = {"batch": 8, "heads": 16, "size": 64, "window": 512, "precision": "bfloat16", **_FEW}
_LENGTHS = {"1k": 1024, "4k": 4096, "16k": 16_384}
_LARGEST_DENSE = 4096  # scores of 16k are 137 GB in bfloat16 and twice that in float32

_TINY_MODEL = {"layers": 2, "dim": 16, "hidden": 24, "heads": 2, "vocabulary": 67}
_TINY = {
    "translator": {**_TINY_MODEL, "batch": 3, "source_length": 7, "target_length": 7},
    "language_model": {**_TINY_MODEL, "batch": 3, "target_length": 11},
    "packing": {"layers": 1, "dim": 16, "hidden": 24, "heads": 2, "rows": 5},
    "attention": {"batch": 2, "length": 37, "heads": 2, "size": 8, "window": 5},
    "decoding": {**_TINY_MODEL, "batch": 3, "source_length": 7},
}
_TINY_TURNS = {"warm_up": 1, "turns": 2, "groups": 2, "precision": "float32", "compile": False}


def figures() -> list[Figure]:
    """Returns all figures, in order."""
    base, big = (list(_translators(name)) for name in _TRANSLATORS)
    first = dataclasses.replace(base[0], name=FIRST_STEP, seconds=30, limit=200)
    ours, peer = _language_models()
    return [
        first,
        *base,
        *big,
        ours,
        peer,
        *_attention(("causal", "window")),
        *_decoding(),
        *_packing(),
        *_attention(("padded", "alibi", "additive")),
        dataclasses.replace(base[0], name=PROFILE, kind="profile", work=_few(base[0].work)),
        dataclasses.replace(base[0], name="transformer_base through fit", kind="fit", seconds=45),
    ]


def tiny(figure: Figure) -> Figure:
    """Returns a figure with tiny sizes, to test that it runs."""
    sizes = _TINY[figure.kind if figure.kind in _TINY else "translator"]
    work = {**figure.work, **sizes, **_TINY_TURNS}
    if "options" in work:
        work["options"] = _options(work)
    return dataclasses.replace(figure, work=work, seconds=1.0)


def _few(work: Mapping[str, Any]) -> dict[str, Any]:
    return {**work, **_FEW}


def _options(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of our model of some sizes."""
    named = {"num_layers": "layers", "model_dim": "dim", "intermediate_dim": "hidden", "num_heads": "heads"}
    return {option: sizes[size] for option, size in named.items()} | {"normalize_first": True}


def _translators(name: str) -> Iterator[Figure]:
    sizes = {**_TRANSLATION, **_TRANSLATORS[name]}
    yield Figure(name, OURS, JAX, "translator", {**sizes, "model": name, "options": _options(sizes)})
    yield Figure(name, TORCH_COMPILED, TORCH, "translator", {**sizes, "compile": True, "unit": "target tokens"})


def _language_models() -> tuple[Figure, Figure]:
    """Returns a model of 124 million weights of ours, and PyTorch's of the same sizes."""
    name, sizes = "causal_lm_modern, 124 M", _LANGUAGE_MODEL
    # 0 means as many heads of keys and values as of queries.
    ours = {**sizes, "model": "causal_lm_modern", "options": {**_options(sizes), "num_key_value_heads": 0}}
    return (
        Figure(name, OURS, JAX, "language_model", ours),
        Figure(name, TORCH_COMPILED, TORCH, "language_model", {**sizes, "compile": True, "unit": "tokens"}),
    )


def _packing() -> Iterator[Figure]:
    for contestant, layout in _LAYOUTS.items():
        yield Figure("sentences in rows", contestant, JAX, "packing", {**_BLOCKS, **layout}, limit=90)


def _attention(kinds: tuple[str, ...]) -> Iterator[Figure]:
    for kind in kinds:
        for name, length in _LENGTHS.items():
            yield from _attention_of(kind, f"attention, {kind}, T={name}", length)


def _attention_of(kind: str, name: str, length: int) -> Iterator[Figure]:
    work = {**_ATTENTION, "attention": kind, "length": length}

    def figure(contestant: str, library: str, **more: Any) -> Figure:
        return Figure(name, contestant, library, "attention", {**work, **more}, seconds=5.0, limit=60.0)

    is_small = length <= _LARGEST_DENSE
    if kind == "additive":
        if is_small:
            yield figure(OURS, JAX)
        return
    yield figure(OURS, JAX)
    if kind == "window":
        yield figure(f"{OURS}, SlidingWindowAttention", JAX, blocks=True)
    if kind != "alibi" or is_small:
        yield figure(CUDNN, JAX, implementation="cudnn")
    if is_small:
        yield figure(XLA, JAX, implementation="xla")
    if kind == "causal" or is_small:  # other masks may have no kernel without stored scores
        yield figure(SDPA, TORCH, flexible=False, compile=False)
    if length == _LARGEST_DENSE or (kind in ("causal", "window") and not is_small):  # each compiles for 10 s or more
        yield figure(FLEX, TORCH, flexible=True, compile=True)


def _decoding() -> Iterator[Figure]:
    sizes = {**_TRANSLATION, **_TRANSLATORS["transformer_base"]}
    for count in (64, 512):
        work = {**sizes, "model": "transformer_base", "options": _options(sizes), "batch": count, **_FEW}
        yield Figure(f"greedy decoding, {count} sentences of 64", OURS, JAX, "decoding", work)
