"""Back-translation: a model translates text in the target language back, to make training pairs."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zoo
from training.data import Pairs
from training.data.files import read_lines
from training.synthetic_data.parts import Report, identity, in_parts, one_line, parallel_data, write_corpus, writing
from zoo.errors import InputError
from zoo.workdir import checksum

PLAN = "back_translation.json"
TAG = "<bt>"


@dataclass(frozen=True)
class BackTranslationRequest:
    """The request of a back-translation.

    Attributes:
        model: Work directory of a model that translates from the target language to the source language, or
            `preset:NAME`.
        monolingual: File of lines in the target language.
        data: SPEC of parallel text, to which the new pairs are added.
        output: The output folder, for `--data text:OUTPUT:source-target`.
        beam_size: Width of beam search.
        tag: Word before each synthetic source; none if empty.
    """

    model: str
    monolingual: Path
    data: str
    output: Path
    beam_size: int = 5
    tag: str = TAG


def back_translate(
    request: BackTranslationRequest,
    report: Report = lambda line: print(line, file=sys.stderr),
    start: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Writes the corpus, or resumes an unfinished one, and returns statistics of it.

    The training split consists of the pairs of the data and, for each line of the monolingual file, of the model's
    translation as the source and the line as the target. So all targets are natural text. The tag distinguishes
    synthetic sources from natural ones. Empty lines and empty translations are left out. The other splits are copied.

    Args:
        request: The request.
        report: Called with a line for each finished part.
        start: Called before the first model is loaded, unless all parts exist already; a command starts the backend
            there, so that mistakes are reported before the seconds that this takes.

    Returns:
        `pairs` in the training split, how many of them are `synthetic`, lines that were `left_out`, and the `data` SPEC
        to train on.

    Raises:
        InputError: For other data than pairs, a file that cannot be read, a tag of several words, or a folder that has
            other contents, belongs to another request, or is being written to by another process.

    Reference:
        Sennrich et al. 2016, "Improving Neural Machine Translation Models with Monolingual Data", section 3.2,
        https://arxiv.org/abs/1511.06709;
        Caswell et al. 2019, "Tagged Back-Translation", section 3.3, https://arxiv.org/abs/1906.06442
    """
    if request.tag and request.tag.split() != [request.tag]:
        raise InputError(f"--tag must be one word, or empty. Received: {request.tag!r}.")
    data, lines = parallel_data(request.data), read_lines(request.monolingual)
    plan = {
        "model": identity(request.model),
        "monolingual": f"{request.monolingual} {checksum(request.monolingual)}",
        "data": request.data,
        "beam_size": request.beam_size,
    }

    def open_model() -> Callable[[range], list[str]]:
        start()
        run = zoo.load(request.model)
        return lambda part: run.translate([lines[number] for number in part], beam_size=request.beam_size)

    with writing(request.output, PLAN, plan):
        sources = map(one_line, in_parts(request.output, len(lines), open_model, report))
        synthetic = [(source, line) for source, line in zip(sources, lines, strict=True) if source and line.strip()]
        prefix = f"{request.tag} " if request.tag else ""
        train = data.split("train")
        mixed = Pairs(
            [*train.source, *(f"{prefix}{source}" for source, _ in synthetic)],
            [*train.target, *(line for _, line in synthetic)],
        )
        spec = write_corpus(request.output, mixed, data)
    return {
        "pairs": len(mixed),
        "synthetic": len(synthetic),
        "left_out": len(lines) - len(synthetic),
        "data": spec,
    }
