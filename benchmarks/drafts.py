"""Measures speculative decoding: the time of one answer with drafts of several lengths, in turns.

`python -m benchmarks.drafts DIR --text FILE [--draft SMALL] [--texts N] [--lengths 0,2,4,8] [--batch_size N]
[--rounds N] [--widen]`

DIR is the work directory of a translator, which translates lines of FILE, or of a language model, which continues
pieces of FILE. `untrained:NAME` is a language model with random weights, which soon repeats itself. Texts are answered
by greedy search in a TensorFlow graph, each alone unless there is a `--batch_size`. Drafts are looked up in the text,
or made by the model in the work directory SMALL. The answers of each length are compared with those of the first
length. With `--widen` the translator is as large as OPUS-MT, and the small model has as large a vocabulary; both answer
as before.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.runner.command import CommandParser
from benchmarks.runner.measure import take_turns
from benchmarks.runner.report import machine_and_commit, table

UNTRAINED = "untrained:"


@dataclass
class Drafted:
    """The answers with drafts of one length.

    Attributes:
        answer: Function that returns the ids of the answers, [B, L], to the ids of a batch of texts, [B, T].
        seconds: The time of each batch, in each turn.
        num_equal: The number of answers that equal those of the first length.
        num_tokens: The number of tokens of all answers.
        num_calls: The number of calls of the model for them.
    """

    answer: Callable[[Any], Any]
    seconds: list[float] = field(default_factory=list)
    num_equal: int = 0
    num_tokens: int = 0
    num_calls: int = 0


def untrained(name: str, count: int, size: int) -> tuple[Any, list[list[int]]]:
    """Returns a language model with random weights in place of a run, and texts: random ids, three times each."""
    import zoo
    from zoo.registry import get_spec

    model = zoo.create_model(name, vocab_size=50_257)
    model({"tokens": np.ones((1, 2), np.int32)})
    chance = np.random.default_rng(0)
    rows = [np.tile(chance.integers(5, 1_000, size // 3), 3).tolist() for _ in range(count)]
    return SimpleNamespace(spec=get_spec(name), model=model, draft_model=None), rows


def texts_of(run: Any, text: str, count: int, size: int) -> list[list[int]]:
    """Returns the ids of `count` lines of a text, or for a language model of pieces of `size` characters."""
    from zoo.inference.language_model_run import cut_prompt

    if run.spec.task == "seq2seq":
        lines = [line for line in text.splitlines() if line.strip()]
        return run.ids([lines[index] for index in _spread(len(lines), count)])
    starts = _spread(max(0, len(text) - size), count)
    return [
        cut_prompt(row, run.model.max_length)
        for row in run.tokenizers.text.encode([text[start : start + size] for start in starts])
    ]


def _spread(total: int, count: int) -> list[int]:
    """Returns `count` of the numbers below `total` at regular distances, at most all."""
    return [int(place) for place in np.linspace(0, total, min(count, total), endpoint=False)]


def widen(run: Any) -> None:
    """Makes a translator as large as OPUS-MT, and the vocabulary of its draft model likewise."""
    from benchmarks.widening import OPUS_MT, OPUS_MT_VOCABULARY, widened

    run.model = widened(run.model, OPUS_MT_VOCABULARY, OPUS_MT)
    if run.draft is not None:
        run.draft.model = widened(run.draft.model, OPUS_MT_VOCABULARY)


def answers_of(run: Any, length: int, max_length: int | None) -> Callable[[Any], Any]:
    """Returns a function that answers with drafts of one length."""
    from zoo.decoding_options import GenerationOptions, TranslationOptions
    from zoo.inference.generator import Generator

    options: dict[str, Any] = {"draft_length": length}
    if max_length is not None:
        options["max_length"] = max_length
    if run.spec.task == "seq2seq":
        translator = run.translator(TranslationOptions(**options))
        return lambda ids: translator({"source": ids})["ids"][:, 0]
    generator = Generator(run.model, GenerationOptions(**options), draft=run.draft_model)
    return lambda ids: generator({"prompt": ids})["ids"]


def in_batches(rows: Sequence[Sequence[int]], batch_size: int) -> Iterator[np.ndarray]:
    """Yields batches of rows of ids, int32 [B, T], padded with 0."""
    from zoo.vocabulary import pad

    for start in range(0, len(rows), batch_size):
        yield pad(rows[start : start + batch_size])


def measure(
    run: Any, batches: Iterable[np.ndarray], lengths: Sequence[int], max_length: int | None, rounds: int
) -> dict[int, Drafted]:
    """Returns the answers to batches of ids [B, T] with drafts of each length."""
    import tensorflow as tf

    from export.check.drafts import counted_calls

    signature = [tf.TensorSpec([None, None], tf.int32)]
    measured = {length: Drafted(tf.function(answers_of(run, length, max_length), signature)) for length in lengths}
    is_continued = run.spec.task != "seq2seq"  # an answer contains the text
    with counted_calls(run.model) as num_calls:
        for batch in batches:
            ids, answers = tf.constant(batch), {}
            for length, drafted in measured.items():
                before = int(num_calls)
                answers[length] = drafted.answer(ids).numpy()
                drafted.num_calls += int(num_calls) - before
                drafted.num_tokens += np.count_nonzero(answers[length]) - is_continued * np.count_nonzero(batch)
                drafted.num_equal += np.all(answers[length] == answers[lengths[0]], axis=1).sum()
            tasks = {str(length): _timed(drafted.answer, ids) for length, drafted in measured.items()}
            turns = take_turns(tasks, rounds, warm_up=0)
            for length, drafted in measured.items():
                drafted.seconds += turns[str(length)]
    return measured


def _timed(answer: Callable[[Any], Any], ids: Any) -> Callable[[], float]:
    """Returns a function that returns the seconds of one answer."""

    def seconds() -> float:
        begun = time.perf_counter()
        answer(ids)
        return time.perf_counter() - begun

    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("drafts", __doc__)
    parser.add_argument("workdir", metavar="DIR", help="work directory, or untrained:NAME")
    parser.add_argument("--text", type=Path, help="file with the texts to translate or to continue")
    parser.add_argument("--draft", metavar="SMALL", help="work directory of the model that drafts (looked up)")
    parser.add_count("texts", 12, "texts")
    parser.add_count("prompt_size", 60, "characters of a text to continue, or tokens for untrained weights")
    parser.add_count("max_length", None, "tokens of an answer (those of the model)")
    parser.add_count("batch_size", 1, "texts that are answered together")
    parser.add_count("rounds", 3, "turns for each batch")
    parser.add_argument("--widen", action="store_true", help="make translators of the size of OPUS-MT")
    parser.add_argument("--lengths", default="0,2,4,8", help="lengths of drafts; the first is the reference")
    options = parser.parse_args(arguments)
    if options.workdir.startswith(UNTRAINED):
        if options.draft is not None:
            parser.error("--draft requires a trained model")
        name = options.workdir.removeprefix(UNTRAINED)
        run, rows = untrained(name, options.texts, options.prompt_size)
    elif options.text is None:
        parser.error("--text is required for a trained model")
    else:
        import zoo

        run = zoo.load(options.workdir, draft=options.draft)
        if options.widen:
            if run.spec.task != "seq2seq":
                parser.error(f"--widen requires a translator. Received: {run.spec.name}")
            try:
                widen(run)
            except ValueError as error:
                parser.error(f"--widen: {error}")
        rows = texts_of(run, options.text.read_text(encoding="utf-8"), options.texts, options.prompt_size)
    if not rows:
        parser.error(f"{options.text} has no text, or less than --prompt_size characters")
    lengths = [int(length) for length in options.lengths.split(",")]
    measured = measure(run, in_batches(rows, options.batch_size), lengths, options.max_length, options.rounds)
    reference = sum(measured[lengths[0]].seconds)
    cells = [
        (
            str(length),
            f"{1000 * statistics.median(drafted.seconds):,.1f} ms",
            f"{reference / sum(drafted.seconds):.2f}×",
            f"{drafted.num_tokens / max(1, drafted.num_calls):.2f}",
            f"{drafted.num_equal} of {len(rows)}",
        )
        for length, drafted in measured.items()
    ]
    names = ["drafted tokens", "median", "speed of all", "tokens per call", "equal answers"]
    print(machine_and_commit(), *table(names, cells), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
