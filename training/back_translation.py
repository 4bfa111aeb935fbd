"""Back-translation: text of the target language alone becomes pairs, whose sources a model writes."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zoo
from training.corpus_parts import Report, identity, in_parts, one_line, parallel_data, write_split, writing
from training.data import Pairs
from training.data.dataset import SPLITS
from training.data.files import read_lines
from zoo.errors import InputError
from zoo.workdir import checksum

PLAN = "back_translation.json"
TAG = "<bt>"


@dataclass(frozen=True)
class BackTranslationRequest:
    """What is translated back.

    Attributes:
        model: Work directory of a model that translates from the target language to the source language, or
            `preset:NAME`.
        monolingual: File of lines in the target language.
        data: SPEC of parallel text, to which the new pairs are added.
        output: The folder that is written, for `--data text:OUTPUT:source-target`.
        beam_size: Of the search.
        tag: Word before each source that the model has written; none if empty.
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
    """Writes the corpus, or goes on with one that was begun, and returns figures of it.

    Its training split is that of the data, and for each line of the monolingual file the pair of what the model makes
    of it and the line itself. So all that is written in training was written by people. The tag tells sources of a
    model from those of people. Lines of which the model makes nothing, and empty ones, are left out. The other splits
    are copied.

    Args:
        request: What is translated back.
        report: Called with a line for each part that is finished.
        start: Called before the first model is loaded, which nothing needs if all parts are there; a command starts
            the backend there, so that mistakes are reported before the seconds that this takes.

    Returns:
        `pairs` in the training split, how many of them are `synthetic`, lines that were `left_out`, and the `data` that
        is to be trained on.

    Raises:
        InputError: For other data than pairs, a file that cannot be read, a tag of several words, or a folder with
            something else, of another request, or into which another process writes.

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
        found = [(source, line) for source, line in zip(sources, lines, strict=True) if source and line.strip()]
        before = f"{request.tag} " if request.tag else ""
        train = data.split("train")
        mixed = Pairs(
            [*train.source, *(f"{before}{source}" for source, _ in found)],
            [*train.target, *(line for _, line in found)],
        )
        for split in SPLITS:
            write_split(request.output, split, mixed if split == "train" else data.split(split))
    return {
        "pairs": len(mixed),
        "synthetic": len(found),
        "left_out": len(lines) - len(found),
        "data": f"text:{request.output}:source-target",
    }
