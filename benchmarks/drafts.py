"""Measures speculative decoding: the time of a continuation with drafts of several lengths, in turns.

`python -m benchmarks.drafts DIR --text FILE [--prompts N] [--prompt_size N] [--lengths 0,2,4,8] [--rounds N]`

DIR is the work directory of a language model, or `untrained:gpt2`, which has random weights and soon repeats itself.
Prompts are pieces of FILE, continued one at a time by greedy search in a TensorFlow graph. The answers of each length
are compared with those without drafts.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner.command import CommandParser
from benchmarks.runner.measure import take_turns
from benchmarks.runner.report import machine_and_commit, table

UNTRAINED = "untrained:"


def prompts_of(source: str, text: str, count: int, size: int) -> tuple[Any, list[list[int]]]:
    """Returns a model and the ids of `count` prompts of `size` characters, or random ids for untrained weights."""
    import zoo

    if not source.startswith(UNTRAINED):
        run = zoo.load(source)
        starts = np.linspace(0, len(text) - size, count).astype(int)
        return run.model, run.tokenizers.text.encode([text[start : start + size] for start in starts])
    tokens = 1_000
    model = zoo.create_model(source.removeprefix(UNTRAINED), vocab_size=50_257)
    model({"tokens": np.ones((1, 2), np.int32)})
    chance = np.random.default_rng(0)
    return model, [np.tile(chance.integers(5, tokens, size // 3), 3).tolist() for _ in range(count)]


def measure(
    model: Any, rows: Sequence[Sequence[int]], lengths: Sequence[int], max_length: int, rounds: int
) -> tuple[dict[int, list[float]], dict[int, int]]:
    """Returns the seconds of each continuation, and the number of equal answers, by length of the drafts."""
    import tensorflow as tf

    from zoo.decoding_options import GenerationOptions
    from zoo.inference.generator import Generator

    signature = [tf.TensorSpec([None, None], tf.int32)]
    generators = {}
    for length in lengths:
        generator = Generator(model, GenerationOptions(draft_length=length, max_length=max_length))
        generators[length] = tf.function(lambda ids, generator=generator: generator({"prompt": ids})["ids"], signature)
    seconds: dict[int, list[float]] = {length: [] for length in lengths}
    equal = dict.fromkeys(lengths, 0)
    for row in rows:
        prompt = tf.constant([row], tf.int32)
        answers = {length: generate(prompt).numpy() for length, generate in generators.items()}
        turns = take_turns({str(n): _timed(generate, prompt) for n, generate in generators.items()}, rounds, warm_up=0)
        for length in lengths:
            equal[length] += np.array_equal(answers[length], answers[lengths[0]])
            seconds[length] += turns[str(length)]
    return seconds, equal


def _timed(generate: Callable[[Any], Any], prompt: Any) -> Callable[[], float]:
    """Returns a function that returns the seconds of one continuation."""

    def seconds() -> float:
        begun = time.perf_counter()
        generate(prompt)
        return time.perf_counter() - begun

    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("drafts", __doc__)
    parser.add_argument("workdir", metavar="DIR", help="work directory of a language model, or untrained:NAME")
    parser.add_argument("--text", type=Path, help="file with the text of which prompts are pieces")
    parser.add_count("prompts", 12, "prompts")
    parser.add_count("prompt_size", 60, "characters of a prompt, or tokens for untrained weights")
    parser.add_count("max_length", None, "tokens of a text (those of the model)")
    parser.add_count("rounds", 3, "turns for each prompt")
    parser.add_argument("--lengths", default="0,2,4,8", help="lengths of drafts; the first is the reference")
    options = parser.parse_args(arguments)
    untrained = options.workdir.startswith(UNTRAINED)
    if options.text is None and not untrained:
        parser.error("--text is required for a trained model")
    text = "" if untrained else options.text.read_text(encoding="utf-8")
    model, rows = prompts_of(options.workdir, text, options.prompts, options.prompt_size)
    lengths = [int(length) for length in options.lengths.split(",")]
    max_length = options.max_length or model.max_length
    seconds, equal = measure(model, rows, lengths, max_length, options.rounds)
    reference = statistics.median(seconds[lengths[0]])
    cells = [
        (
            str(length),
            f"{1000 * statistics.median(spent):,.0f} ms",
            f"{reference / statistics.median(spent):.2f}×",
            f"{equal[length]} of {len(rows)}",
        )
        for length, spent in seconds.items()
    ]
    print(machine_and_commit(), *table(["drafted tokens", "median", "speed", "equal answers"], cells), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
