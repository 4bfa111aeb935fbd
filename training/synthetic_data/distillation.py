"""Sequence-level distillation: teachers' translations replace the references, or are added to them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from training.data import Pairs
from training.data.languages import language_of
from training.synthetic_data.parts import Report, identity, in_parts, one_line, parallel_data, write_corpus, writing

if TYPE_CHECKING:
    from zoo.inference.seq2seq_run import Seq2SeqRun

PLAN = "distill.json"


@dataclass(frozen=True)
class DistillationRequest:
    """The request of a distillation.

    Attributes:
        teachers: Work directories of translators, or `preset:NAME`.
        data: SPEC of parallel text.
        output: The output folder, for `--data text:OUTPUT:source-target`.
        beam_size: Number of candidates from each teacher.
        references: Whether the training split also contains the original pairs, after the new ones.
    """

    teachers: tuple[str, ...]
    data: str
    output: Path
    beam_size: int = 5
    references: bool = False


def distill(
    request: DistillationRequest,
    report: Report = lambda line: print(line, file=sys.stderr),
    start: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Writes the corpus, or resumes an unfinished one, and returns statistics of it.

    Of the `beam_size` best translations of every teacher, the one with the highest sentence BLEU against the reference
    replaces it in the training split; among equal ones, the one with the highest log probability. The reference
    stays where all translations are empty. The other splits are copied. A finished folder can be written again with or
    without `references`; the translations are reused.

    Args:
        request: The request.
        report: Called with a line for each finished part.
        start: Called before the first model is loaded, unless all parts exist already; a command starts the backend
            there, so that mistakes are reported before the seconds that this takes.

    Returns:
        `pairs` of the training split, mean sentence `bleu` of the best translation of the first teacher and
        `chosen_bleu` of the chosen ones, against the references; and the `data` SPEC to train on.

    Raises:
        InputError: For other data than pairs, or a folder that has other contents, belongs to another request, or is
            being written to by another process.

    Reference:
        Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.3 (interpolation),
        https://arxiv.org/abs/1606.07947
    """
    data = parallel_data(request.data)
    pairs = data.split("train")
    plan = {
        "teachers": [identity(path) for path in request.teachers],
        "data": request.data,
        "pairs": len(pairs),
        "beam_size": request.beam_size,
    }

    def open_teachers() -> Callable[[range], list[dict[str, Any]]]:
        start()
        runs = [zoo.load(path) for path in request.teachers]
        return lambda part: [asdict(choice) for choice in best_of(runs, pairs.take(part), request.beam_size)]

    with writing(request.output, PLAN, plan):
        rows = [Choice(**row) for row in in_parts(request.output, len(pairs), open_teachers, report)]
        train = Pairs(pairs.source, [row.text for row in rows])
        if request.references:
            train = Pairs([*train.source, *pairs.source], [*train.target, *pairs.target])
        spec = write_corpus(request.output, train, data)
    count = max(len(rows), 1)
    return {
        "pairs": len(train),
        "bleu": round(sum(row.bleu for row in rows) / count, 2),
        "chosen_bleu": round(sum(row.chosen_bleu for row in rows) / count, 2),
        "data": spec,
    }


@dataclass(frozen=True)
class Choice:
    """The translation that replaces a reference.

    Attributes:
        text: The translation.
        bleu: BLEU of the first teacher's best translation against the reference.
        chosen_bleu: BLEU of the chosen translation.
    """

    text: str
    bleu: float
    chosen_bleu: float


def best_of(runs: Sequence["Seq2SeqRun"], pairs: Pairs, beam_size: int) -> list[Choice]:
    """Returns the translation of each source that is most similar to its reference; see `distill`."""
    from sacrebleu.metrics.bleu import BLEU

    from training.tasks.metrics import bleu_tokenizer

    lowercase = any(run.config["data"]["lowercase"] for run in runs)  # such a teacher outputs no capitals
    tokenizer = bleu_tokenizer(language_of(pairs.target))
    metric = BLEU(effective_order=True, lowercase=lowercase, tokenize=tokenizer)
    lists = [run.nbest(pairs.source, beam_size=beam_size) for run in runs]
    choices = []
    for reference, *of_teachers in zip(pairs.target, *lists, strict=True):
        candidates = [(one_line(beam.text), beam.log_prob) for hypotheses in of_teachers for beam in hypotheses]
        scored = [(metric.sentence_score(text, [reference]).score, log_prob, text) for text, log_prob in candidates]
        score, _, text = max((row for row in scored if row[2]), default=(100.0, 0.0, reference))
        choices.append(Choice(text, scored[0][0], score))
    return choices
