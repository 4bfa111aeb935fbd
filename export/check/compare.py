"""Compares an exported model with the work directory that it came from: `export.saved_model … --check`."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from export.check import stock_loader
from export.check.stock_loader import decoded
from export.graph.provenance import read_options
from export.graph.served_model import model_graph, signature_function
from export.graph.signatures import TEXTS, Signature, signatures_of
from export.options import ExportOptions
from zoo.errors import InputError
from zoo.inference import Run
from zoo.stored_weights import round_weights

TOLERANCE = 1e-3


class Question(NamedTuple):
    """Inputs of a signature, and the outputs that it should have, as nested lists."""

    signature: str
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]


def check_export(run: Run, folder: Path) -> int:
    """Loads a version in a separate process, without this project, and compares its answers with those of its run.

    All signatures are asked. If its weights have fewer bits, the model of the run is rounded likewise.

    Returns:
        How many answers were compared.

    Raises:
        InputError: If the version cannot be loaded, or an answer differs.
    """
    options = read_options(folder)
    if options.weights != "float32":
        run = run.reloaded()  # Not the caller's, whose weights must stay.
        round_weights(run.model, options.weights)
    signatures = signatures_of(run, options)
    count = _compare(folder, [question(run, options, signature) for signature in signatures if not signature.compiled])
    compiled = [question(run, options, signature) for signature in signatures if signature.compiled]
    return count + (_compare(folder, [*_single_texts(compiled)], "xla") if compiled else 0)


def question(run: Run, options: ExportOptions, signature: Signature) -> Question:
    """Returns what a signature is asked, and what it should answer."""
    if signature.expected is not None:
        return Question(signature.name, *signature.expected(run, options))
    graph = model_graph(run, replace(options, weights="float32", dynamic_batching=False))
    inputs = signature.example(TEXTS)
    outputs = signature_function(graph, signature)(*inputs.values())
    expected = {name: decoded(output.numpy().tolist()) for name, output in outputs.items()}
    return Question(signature.name, inputs, expected)


def _single_texts(questions: Sequence[Question]) -> Iterator[Question]:
    """Yields questions about one text each: the short ones are then answered by compiled code."""
    for signature, inputs, expected in questions:
        for index in range(len(next(iter(inputs.values())))):
            yield Question(
                signature,
                {name: values[index : index + 1] for name, values in inputs.items()},
                {name: values[index : index + 1] for name, values in expected.items()},
            )


def _compare(folder: Path, questions: Sequence[Question], *flags: str) -> int:
    """Returns how many answers were compared, all of which are as expected."""
    requests = [
        {"signature": signature, "inputs": inputs, "outputs": list(expected)}
        for signature, inputs, expected in questions
    ]
    # Isolated: neither the current folder nor PYTHONPATH counts.
    command = [sys.executable, "-I", stock_loader.__file__, str(folder), *flags]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{folder} does not load the way a server loads it: {done.stderr.strip().splitlines()[-1:]}")
    report = json.loads(done.stdout.splitlines()[-1])
    if report["foreign"]:
        raise InputError(f"{folder} was not loaded without {', '.join(report['foreign'])}, which a server lacks.")
    for asked, answer in zip(questions, report["answers"], strict=True):
        for name, expected in asked.expected.items():
            if not _is_close(answer[name], expected):
                raise InputError(
                    f"{folder} answers otherwise than its work directory: signature {asked.signature!r}, output "
                    f"{name!r}. Expected {_beginning(expected)}; received {_beginning(answer[name])}."
                )
    return sum(len(next(iter(asked.expected.values()))) for asked in questions)


def _beginning(values: Any) -> str:
    text = str(values)
    return text if len(text) <= 1000 else f"{text[:1000]}…"


def _is_close(received: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(received) == len(expected) and all(map(_is_close, received, expected))
    if isinstance(expected, float):
        return bool(abs(received - expected) <= TOLERANCE * max(1.0, abs(expected)))
    return bool(received == expected)
