"""The two pages of results: their introductions, sections and missed goals."""

from collections.abc import Iterable
from pathlib import Path

from benchmarks.results.quality import QualitySection
from benchmarks.results.rows import FOLDER
from benchmarks.results.speed import SpeedSection, fell_short
from benchmarks.runner.process import ROOT

QUALITY_PAGE = ROOT / "training" / "RESULTS.md"
SPEED_PAGE = ROOT / "benchmarks" / "RESULTS.md"
QUALITY_PICTURE = FOLDER / "quality.svg"
SPEED_PICTURE = FOLDER / "speed.svg"

_QUALITY = """# Results

<!-- Written by `python -m benchmarks.results` from results/*.csv. -->

The quality of models, the best first: mean ± standard deviation over runs that differ in their seeds. The search of
each was chosen on validation data. A – under validation means that the search was fixed before. One run proves little:
two runs of `rnnsearch` with one seed and slightly different arithmetic differed by 1.3 BLEU. Minutes include other
work on shared machines.

All figures, with the command of each, are in [results/](../results/README.md). How each came about, and what was
tried and dropped, is in the [lab notes](../docs/lab-notes/index.md), to which the dates lead.

![Test BLEU of each row of Multi30k, with the deviation over its runs](../results/quality.svg)"""

_SPEED = """# Measured beside the peers

<!-- Written by `python -m benchmarks.results` from results/*.csv. -->

Speed, memory and size beside their goals, the newest figure on each kind of hardware. Speed is a ratio: contestants
take turns on the same cores, the median counts, and 3.4× is 3.4 times as fast. Quartiles or the range are in
brackets.

`make bench` measures everything; one part alone is `python -m benchmarks.attention`, `benchmarks.training`,
`benchmarks.growth`, `benchmarks.decoding` and so on. All figures, with the command of each, are in
[results/](../results/README.md). How each came about, and what was tried and dropped, is in the [lab
notes](../docs/lab-notes/index.md), to which the dates lead. Pages of their own have [the attention
contract](conformance/RESULTS.md) and [imported models beside their own software](../docs/parity.md).

![Speed beside other software: points on the right of 1× are faster than it](../results/speed.svg)"""

EN_DE, DE_EN = "Multi30k, English to German", "Multi30k, German to English"
_EN_DE = """The 2016 test set, 1,000 sentences; sacreBLEU of lower-cased text with 13a tokens. From the literature:
Transformer-Tiny 41.02 (Wu et al. 2021), a GRU with Bahdanau's attention 39.0 (nmtpytorch)."""
_BUDGET = """After 800 steps of 2,048 tokens, with about two million weights each: this compares the speed of learning,
not the final quality. [All 26 models](../docs/evidence/zoo.md)."""
_ORDER = """Accuracy in percent on 2,000 test sentences of `senses:twins`, whose classes depend on word order alone.
Without positions half of the predictions are right: [all
positions](../docs/lab-notes/2026-11-25-order-and-meaning.md)."""
_CHARACTERS = """Nats per character of the validation text of `lines:tinyshakespeare`, which chose the checkpoint,
too: there is no third split. nanoGPT has 1.88 with its configuration for CPUs, and 1.4697 with 10.65 million weights
on a GPU."""
_TREC = "Accuracy in percent on 500 test questions. CNN-rand of Kim 2014 has 91.2."
_TRANSLATION, _CLASSIFICATION = "translation", "classification"
QUALITY_SECTIONS = (
    QualitySection(EN_DE, _TRANSLATION, EN_DE, "BLEU", 2, _EN_DE),
    QualitySection(DE_EN, _TRANSLATION, DE_EN, "BLEU", 2, "The same sentences, read the other way."),
    QualitySection("One short budget", _TRANSLATION, f"{EN_DE}, 800 steps", "BLEU", 2, _BUDGET),
    QualitySection("Dates", _TRANSLATION, "Dates", "exact match", 2, "Exact match in percent of 2,000 test dates."),
    QualitySection("Questions of TREC", _CLASSIFICATION, "TREC, 6 classes", "accuracy", 1, _TREC),
    QualitySection("Order of words", _CLASSIFICATION, "Order of words: senses:twins", "accuracy", 2, _ORDER),
    QualitySection("Characters", "language_models", "Tinyshakespeare", "cross-entropy", 3, _CHARACTERS),
)

_ATTENTION = "Forward and backward in TensorFlow graphs; eager calls are forward."
_GROWTH = """The slope of log time against log T from T = 1,024 on, forward and backward; [all
layers](../docs/lab-notes/2026-11-25-growth-with-the-length.md)."""
_TRAINING = """Beside PyTorch with and without `torch.compile`, KerasHub, Hugging Face, TF Model Garden, OpenNMT-tf
and Joey NMT."""
_PEER, _PEERS = "speed against the fastest peer", "speed against (OpenNMT-tf and .*|CTranslate2)"
SPEED_SECTIONS = (
    SpeedSection(
        "Attention",
        _ATTENTION,
        (
            ("attention", r"additive, B1 .*\|zoo\|\|(speed against Keras'|times less extra memory than Keras')"),
            ("attention", r"(scaled dot, B1|multi-head, B8|multi-head, causal, B1) .*\|zoo\|\|speed against Keras'"),
            ("attention", r"eager call, .*\|zoo\|\|time against Keras'"),
        ),
    ),
    SpeedSection(
        "Growth with the length",
        _GROWTH,
        (
            ("growth", r".*\|zoo\|(AdditiveAttention|MultiHeadAttention|DotAttention), batch .\|slope.*"),
            ("growth", r".*\|zoo\|(SlidingWindow|Linear|DeltaRule)Attention, batch 16\|slope.*"),
        ),
    ),
    SpeedSection(
        "Training steps",
        _TRAINING,
        (("steps", rf"training\|zoo\|.*\|{_PEER}"), ("steps", r"training\|transformer_tiny\|a step\|operations")),
    ),
    SpeedSection(
        "Decoding",
        "",
        (
            ("decoding", rf"64 sentences of 16 tokens.* untrained\|zoo\|.*\|{_PEERS}"),
            ("decoding", r"64 sentences of Multi30k .*\|zoo\|(greedy|beam 5)(, in parts)?\|speed against CTranslate2"),
            ("decoding", r"one sentence .*, text to text\|zoo\|.*xla\|speed against CTranslate2"),
            ("decoding", r"test set of Multi30k, .*\|zoo\|\|speed of student with shortlist.* teacher, beam 5"),
        ),
    ),
    SpeedSection(
        "Checkpoints of others",
        "",
        (
            ("decoding", r"(OPUS-MT|MiniLM|GPT-2): .*\|zoo\|.*\|speed against transformers"),
            ("decoding", r"(OPUS-MT|GPT-2): .*\|zoo\|(greedy|8 texts)\|speed against CTranslate2"),
        ),
    ),
    SpeedSection(
        "Serving",
        "",
        (
            ("serving", r"16 clients, .*\|.*\|\|speed against one client"),
            ("serving", r"(start of the server to its first answer|export.saved_model)\|transformer_tiny\|\|time"),
            ("serving", r"server that has started\|transformer_tiny\|\|memory.*"),
            ("serving", r"(one sentence over gRPC|highest rate .*)\|zoo\|.*\|speed against CTranslate2"),
        ),
    ),
    SpeedSection(
        "Corpora and the start",
        "",
        (
            ("data", r"ten million .*\|zoo\|\|pairs per second of the whole preparation"),
            ("data", r"export.batch, start included\|zoo\|.*\|lines per second"),
            ("steps", r"transformer_tiny on dates: .* to its first step\|zoo\|\|time"),
        ),
    ),
)


def quality_page(folder: Path = FOLDER) -> str:
    """Returns the page of the quality of models."""
    groups = (group for section in QUALITY_SECTIONS for group in section.groups(folder))
    missed = (item for group in groups for item in group.missed())
    return _page(_QUALITY, (section.write(folder) for section in QUALITY_SECTIONS), missed)


def speed_page(folder: Path = FOLDER) -> str:
    """Returns the page of speed, memory and size."""
    return _page(_SPEED, (section.write(folder) for section in SPEED_SECTIONS), fell_short(folder))


def _page(introduction: str, sections: Iterable[str], missed: Iterable[str]) -> str:
    short = "## What fell short\n\nThe newest figures that miss their goals, with these in brackets:\n\n" + "\n".join(
        missed
    )
    return "\n\n".join([introduction, *sections, short]) + "\n"
