"""Compares an exported model with the work directory that it came from: `export.saved_model … --check`."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from export.graph.provenance import read_options
from export.graph.signatures import CLASSIFY, XLA
from zoo.errors import InputError
from zoo.inference import ClassifierRun, LanguageModelRun, Run, Seq2SeqRun, load_run
from zoo.stored_weights import round_weights

TEXTS = ["A man rides a horse.", "", "14 July 1789", "17+25=", "naïve café ß Ω 漢字 😀", "x" * 300, "the old man"]
# Attention has a number for each pair of symbols.
SHORT = [text for text in TEXTS if len(text) < 100]
TOLERANCE = 1e-3
NO_SEQUENCE = ("", -1e30)
"""What stands in for an answer where a model knows fewer than the signature `nbest` has room for."""


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


def check_export(run: Run, folder: Path) -> int:
    """Loads an export in a process of its own, without this project, and compares its answers with the run's.

    All signatures are asked. What weights in fewer bits answer is compared with the run's model, rounded likewise.

    Args:
        run: The work directory that was exported.
        folder: Folder of the version.

    Returns:
        How many answers were compared.

    Raises:
        InputError: If the model cannot be loaded, or an answer differs.
    """
    options = read_options(folder)
    if options["weights"] != "float32":
        run = load_run(run.path)  # whose weights are nobody else's
        round_weights(run.model, options["weights"])
    questions = list(_QUESTIONS[run.spec.task](run, options))
    count = _compare(folder, questions)
    if options["xla"]:
        default = next(each for each in questions if each.signature == "serving_default")
        count += _compare(folder, list(_one_by_one(default)), XLA)
    return count


def _compare(folder: Path, questions: Sequence[Question], *flags: str) -> int:
    """Returns how many answers were compared, all of which are as they should be."""
    requests = [
        {"signature": each.signature, "inputs": each.inputs, "outputs": list(each.expected)} for each in questions
    ]
    script = Path(__file__).with_name("reload.py")
    # Isolated: neither the current folder nor PYTHONPATH counts.
    command = [sys.executable, "-I", str(script), str(folder), *flags]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True)
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
                    f"{name!r}. Expected {_beginning(expected)}; received {_beginning(answer[name])}."
                )
    return sum(len(next(iter(question.expected.values()))) for question in questions)


def _beginning(values: Any) -> str:
    text = str(values)
    return text if len(text) <= 1000 else f"{text[:1000]}…"


def _one_by_one(question: Question) -> Iterator[Question]:
    """Yields a question to the signature `xla` for each text: the short ones are answered by compiled code."""
    for index, text in enumerate(question.inputs["text"]):
        expected = {name: values[index : index + 1] for name, values in question.expected.items()}
        yield Question(XLA, {"text": [text]}, expected)


def _alike(found, expected) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_alike, found, expected))
    if isinstance(expected, float):
        return abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))
    return found == expected


def _stacked(arrays: Iterable[Any], fill: Any) -> list:
    """Returns arrays of one rank as one, each padded behind, as nested lists."""
    arrays = [np.asarray(array, object if fill == "" else None) for array in arrays]
    whole = np.full((len(arrays), *np.max([array.shape for array in arrays], axis=0)), fill, arrays[0].dtype)
    for place, array in zip(whole, arrays, strict=True):
        place[tuple(map(slice, array.shape))] = array
    return whole.tolist()


def _seq2seq(run: Seq2SeqRun, options: dict[str, Any]) -> Iterator[Question]:
    beam_size, count = options["beam_size"], options["nbest"]
    names = ("length_penalty", "coverage_penalty", "max_length", "no_repeat_ngram")
    decoding = {name: options[name] for name in names}
    best = [each[0] for each in run.nbest(TEXTS, beam_size, **decoding)]
    texts = [each.text for each in best]
    yield Question("serving_default", {"text": TEXTS}, {"text": texts, "log_prob": [each.log_prob for each in best]})
    found = [
        [*((each.text, each.log_prob) for each in row[:count]), *[NO_SEQUENCE] * (count - len(row))]
        for row in run.nbest(TEXTS, max(count, beam_size), **decoding)
    ]
    outputs = {"texts": 0, "log_probs": 1}
    expected: dict[str, Any] = {
        name: [[each[place] for each in row] for row in found] for name, place in outputs.items()
    }
    yield Question("nbest", {"text": TEXTS}, expected)
    yield Question("score", {"source": TEXTS, "target": texts}, {"log_prob": run.score(TEXTS, texts)})
    if run.model.attends:
        answered = [(text, found) for text, found in zip(TEXTS, best, strict=True) if text in SHORT]
        source, target, weights = zip(*(run.align(*each) for each in answered), strict=True)
        expected = {"text": [found.text for _, found in answered]}
        expected |= {"source_tokens": _stacked(source, ""), "target_tokens": _stacked(target, "")}
        yield Question("attention", {"text": SHORT}, {**expected, "attention": _stacked(weights, 0.0)})


def _classifier(run: ClassifierRun, _) -> Iterator[Question]:
    answers = run.classify(TEXTS)
    probabilities = [answer.probabilities.tolist() for answer in answers]
    classes = [run.classes] * len(TEXTS)
    labels = [answer.label for answer in answers]
    expected = {"label": labels, "probabilities": probabilities, "classes": classes}
    yield Question("serving_default", {"text": TEXTS}, expected)
    examples = []
    for text in TEXTS:
        example = tf.train.Example()
        example.features.feature["text"].bytes_list.value.append(text.encode())
        examples.append(example.SerializeToString().decode("utf-8", "surrogateescape"))
    yield Question(CLASSIFY, {"inputs": examples}, {"classes": classes, "scores": probabilities})
    tokens, vectors = zip(*run.embed(SHORT), strict=True)
    expected = {"tokens": _stacked(tokens, "")}
    yield Question("embed", {"text": SHORT}, {**expected, "embeddings": _stacked(vectors, 0.0)})
    if run.model.attends:
        weights = [weights for _, weights in run.attention(SHORT)]
        yield Question("attention", {"text": SHORT}, {**expected, "attention": _stacked(weights, 0.0)})


def _language_model(run: LanguageModelRun, options: dict[str, Any]) -> Iterator[Question]:
    rules = {name: options[name] for name in ("max_length", "no_repeat_ngram")}
    found = run.continuations(TEXTS, **rules)
    expected: dict[str, Any] = {"text": [each.text for each in found], "log_prob": [each.log_prob for each in found]}
    yield Question("serving_default", {"text": TEXTS}, expected)
    draws = {"seed": 3, "temperature": 0.7, "top_p": 0.9}
    yield Question("sample", {"text": TEXTS, **draws}, {"text": run.generate(TEXTS, **draws, **rules)})
    scores = run.score(TEXTS)
    expected = {"log_prob": [each.log_prob for each in scores], "num_tokens": [each.num_tokens for each in scores]}
    yield Question("score", {"text": TEXTS}, expected)


_QUESTIONS: dict[str, Callable[..., Iterator[Question]]] = {
    "seq2seq": _seq2seq,
    "classifier": _classifier,
    "language_model": _language_model,
}
