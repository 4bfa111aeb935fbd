"""Compares an exported model with the work directory that it came from: `export.saved_model … --check`."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zoo.errors import InputError
from zoo.run import ClassifierRun, LanguageModelRun, Run, Seq2SeqRun

TEXTS = ["A man rides a horse.", "", "14 July 1789", "17+25=", "naïve café ß Ω 漢字 😀", "x" * 300, "the old man"]
TOLERANCE = 1e-3


class Question(NamedTuple):
    """What an exported model is asked, and what it should answer.

    Attributes:
        signature: The signature.
        inputs: Its inputs.
        expected: Outputs by name, as nested lists.
    """

    signature: str
    inputs: dict[str, Any]
    expected: dict[str, Any]


def check_export(run: Run, folder: Path, **options: Any) -> int:
    """Loads an export in a process of its own, without this project, and compares its answers with the run's.

    Args:
        run: The work directory that was exported.
        folder: Folder of the version.
        **options: What it was exported with.

    Returns:
        How many answers were compared.

    Raises:
        InputError: If the model cannot be loaded, or an answer differs.
    """
    stored = options.pop("weights", "float32")
    options.pop("dynamic_batching", None)
    xla = options.pop("xla", False)
    if stored != "float32":
        raise InputError(f"--check needs weights as they were trained. Received: weights={stored}.")
    questions = list(_QUESTIONS[run.spec.task](run, **options))
    if xla:
        questions += _one_by_one(next(each for each in questions if each.signature == "serving_default"))
    requests = [
        {"signature": each.signature, "inputs": each.inputs, "outputs": list(each.expected)} for each in questions
    ]
    script = Path(__file__).with_name("reload.py")
    # Isolated: neither the current folder nor PYTHONPATH counts.
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(folder)], input=json.dumps(requests), capture_output=True, text=True
    )
    if done.returncode:
        raise InputError(f"{folder} does not load the way a server loads it: {done.stderr.strip().splitlines()[-1:]}")
    report = json.loads(done.stdout.splitlines()[-1])
    if report["foreign"]:
        raise InputError(f"{folder} was not loaded without {', '.join(report['foreign'])}, which a server lacks.")
    for question, answer in zip(questions, report["answers"], strict=True):
        for name, expected in question.expected.items():
            if not _alike(answer[name], expected):
                raise InputError(
                    f"{folder} answers otherwise than its work directory: signature {question.signature!r}, output "
                    f"{name!r}. Expected {expected}; received {answer[name]}."
                )
    return sum(len(next(iter(question.expected.values()))) for question in questions)


def _one_by_one(question: Question) -> Iterator[Question]:
    """Yields a question to the signature `xla` for each text: the short ones are answered by compiled code."""
    for index, text in enumerate(question.inputs["text"]):
        expected = {name: values[index : index + 1] for name, values in question.expected.items()}
        yield Question("xla", {"text": [text]}, expected)


def _alike(found, expected) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_alike, found, expected))
    if isinstance(expected, float):
        return abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))
    return found == expected


def _seq2seq(run: Seq2SeqRun, nbest: int | None = None, **options) -> Iterator[Question]:
    answers = run.nbest(TEXTS, **{"beam_size": 1, **options})
    best = [each[0].text for each in answers]
    log_probs = [each[0].log_prob for each in answers]
    yield Question("serving_default", {"text": TEXTS}, {"text": best, "log_prob": log_probs})
    yield Question("score", {"source": TEXTS, "target": best}, {"log_prob": run.score(TEXTS, best)})


def _classifier(run: ClassifierRun) -> Iterator[Question]:
    answers = run.classify(TEXTS)
    probabilities = [answer.probabilities.tolist() for answer in answers]
    labels = [answer.label for answer in answers]
    yield Question("serving_default", {"text": TEXTS}, {"label": labels, "probabilities": probabilities})


def _language_model(run: LanguageModelRun, **options) -> Iterator[Question]:
    yield Question("serving_default", {"text": TEXTS}, {"text": run.generate(TEXTS, **options)})
    sampled = run.generate(TEXTS, temperature=0.7, top_p=0.9, seed=3, **options)
    inputs = {"text": TEXTS, "seed": 3, "temperature": 0.7, "top_p": 0.9}
    yield Question("sample", inputs, {"text": sampled})


_QUESTIONS: dict[str, Callable[..., Iterator[Question]]] = {
    "seq2seq": _seq2seq,
    "classifier": _classifier,
    "language_model": _language_model,
}
