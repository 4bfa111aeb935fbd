"""Compares an exported model with its work directory: `export.saved_model … --check`."""

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


class Expectation(NamedTuple):
    """Inputs of a signature and the expected outputs, as nested lists."""

    signature: str
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]


def check_export(run: Run, folder: Path) -> int:
    """Loads a version in a separate process, without this project, and compares its outputs with those of its run.

    All signatures are compared. If the version's weights are rounded, those of the run are rounded likewise.

    Returns:
        The number of outputs that were compared.

    Raises:
        InputError: If the version cannot be loaded, or an output differs.
    """
    options = read_options(folder)
    if options.weights != "float32":
        run = run.reloaded()  # a copy, because the caller's weights must not change
        round_weights(run.model, options.weights)
    signatures = signatures_of(run, options)
    expectations = [expectation_of(run, options, signature) for signature in signatures if not signature.compiled]
    count = _compare(folder, expectations)
    compiled = [expectation_of(run, options, signature) for signature in signatures if signature.compiled]
    return count + (_compare(folder, [*_single_texts(compiled)], "xla") if compiled else 0)


def expectation_of(run: Run, options: ExportOptions, signature: Signature) -> Expectation:
    """Returns inputs for a signature and the outputs that are expected for them."""
    if signature.expected is not None:
        return Expectation(signature.name, *signature.expected(run, options))
    graph = model_graph(run, replace(options, weights="float32", dynamic_batching=False))
    inputs = signature.example(TEXTS)
    outputs = signature_function(graph, signature)(*inputs.values())
    expected = {name: decoded(output.numpy().tolist()) for name, output in outputs.items()}
    return Expectation(signature.name, inputs, expected)


def _single_texts(expectations: Sequence[Expectation]) -> Iterator[Expectation]:
    """Yields one expectation per text, so that compiled code runs for the short texts."""
    for signature, inputs, expected in expectations:
        for index in range(len(next(iter(inputs.values())))):
            yield Expectation(
                signature,
                {name: values[index : index + 1] for name, values in inputs.items()},
                {name: values[index : index + 1] for name, values in expected.items()},
            )


def _compare(folder: Path, expectations: Sequence[Expectation], *flags: str) -> int:
    """Compares a version's outputs with the expected ones and returns their number; raises if any differs."""
    requests = [
        {"signature": signature, "inputs": inputs, "outputs": list(expected)}
        for signature, inputs, expected in expectations
    ]
    # `-I` isolates the process from the current folder and PYTHONPATH.
    command = [sys.executable, "-I", stock_loader.__file__, str(folder), *flags]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{folder} cannot be loaded as a server loads it: {done.stderr.strip().splitlines()[-1:]}")
    report = json.loads(done.stdout.splitlines()[-1])
    if report["foreign"]:
        raise InputError(f"{folder} requires {', '.join(report['foreign'])}, which a server lacks.")
    for expectation, answer in zip(expectations, report["answers"], strict=True):
        for name, expected in expectation.expected.items():
            if not _is_close(answer[name], expected):
                raise InputError(
                    f"{folder} differs from its work directory: signature {expectation.signature!r}, output {name!r}. "
                    f"Expected {_beginning(expected)}; received {_beginning(answer[name])}."
                )
    return sum(len(next(iter(expectation.expected.values()))) for expectation in expectations)


def _beginning(values: Any) -> str:
    text = str(values)
    return text if len(text) <= 1000 else f"{text[:1000]}…"


def _is_close(received: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(received) == len(expected) and all(map(_is_close, received, expected))
    if isinstance(expected, float):
        return bool(abs(received - expected) <= TOLERANCE * max(1.0, abs(expected)))
    return bool(received == expected)
