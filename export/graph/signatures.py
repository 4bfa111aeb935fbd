"""Signatures of exported models: each is declared once, with function, inputs, warm-up requests and expected outputs.

A new signature is one decorated function, in this package or in your own module for `--import`:

    from export.graph.signatures import register_signature

    @register_signature("seq2seq", "count")
    def count(graph, text):
        return {"tokens": tf.math.count_nonzero(graph.read(text), axis=1)}

Its parameters after the first are the inputs; those with a default are optional in requests. On servers with
`--enable_batching`, an input is optional only if its default is one row, [1], and the request has one text. Warm-up
requests and the check are derived from the inputs.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from export.options import ExportOptions
from zoo.errors import unknown_name
from zoo.inference import Run

if TYPE_CHECKING:
    from export.graph.model_graph import ModelGraph

DEFAULT = "serving_default"
XLA = "xla"
PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
"""The API of signatures that take `tf.Example`s and return `classes` and `scores`."""

TEXTS = ["A man rides a horse.", "", "14 July 1789", "17+25=", "naïve café ß Ω 漢字 😀", "x" * 300, "the old man"]
"""The inputs of a check."""
# Attention weights are quadratic in the length of a text.
SHORT_TEXTS = [text for text in TEXTS if len(text) < 100]

Function = Callable[..., Mapping[str, tf.Tensor]]
Answers = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Inputs of a signature and the expected outputs, as nested lists."""


def attends(model: Any, options: ExportOptions) -> bool:
    """Returns whether a model has attention, for `available`."""
    return bool(model.attention_kinds)


@dataclass(frozen=True)
class Signature:
    """The declaration of a signature.

    Attributes:
        task: The task of its models.
        name: Its name.
        function: Function of a `ModelGraph` and of the inputs that returns a dict of tensors with the batch axis first.
        inputs: The inputs by name.
        defaults: The values of optional inputs, which are the last ones.
        batchable: Whether the sizes of its results are independent of the texts, so that requests can share a batch.
            All arguments of the function are then batches of the same size.
        prepare: Function of the inputs that returns the arguments of `function` after the graph. It rejects invalid
            inputs before `--dynamic_batching` combines requests. Default: the inputs are the arguments.
        available: Function of a model and the options of its export; returns whether the model has this signature.
        api: `PREDICT` or `CLASSIFY`.
        compiled: Whether XLA compiles it.
        alone: An output that is warmed up by itself, too, because many clients request only this output.
        warm_up: Function of a `ModelGraph` that returns batches of texts for warm-up. Default: one short text.
        expected: Function of a run and the options of its export that returns the inputs of a check and the run's
            outputs. Default: the outputs of the graph in this process.
    """

    task: str
    name: str
    function: Function
    inputs: Mapping[str, tf.TensorSpec]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    batchable: bool = False
    prepare: Callable[..., tuple[tf.Tensor, ...]] = lambda *inputs: inputs
    available: Callable[[Any, ExportOptions], bool] = lambda model, options: True
    api: str = PREDICT
    compiled: bool = False
    alone: str | None = None
    warm_up: "Callable[[ModelGraph], Iterable[list[str]]]" = lambda graph: [["warm up"]]
    expected: Callable[[Any, Any], Answers] | None = None

    def example(self, texts: list[str]) -> dict[str, Any]:
        """Returns inputs in which all strings are `texts` and all numbers are 1, without optional inputs."""
        return {
            name: texts if spec.dtype == tf.string else 1 if spec.shape.rank == 0 else [1] * len(texts)
            for name, spec in self.inputs.items()
            if name not in self.defaults
        }


_SIGNATURES: dict[tuple[str, str], Signature] = {}


def register_signature(
    task: str, name: str, inputs: Mapping[str, tf.TensorSpec] | None = None, **declaration: Any
) -> Callable[[Function], Function]:
    """Returns a decorator that adds a function to the signatures of a task.

    Args:
        task: `"seq2seq"`, `"classifier"`, `"language_model"` or `"sentence_encoder"`.
        name: The signature's name.
        inputs: The inputs that are not batches of texts, string [B].
        **declaration: Further attributes of `Signature`.

    Raises:
        ValueError: If the task has a signature of that name.
    """
    if (task, name) in _SIGNATURES:
        raise ValueError(f"A signature {name!r} of {task} models is registered already.")

    def register(function: Function) -> Function:
        _, *parameters = inspect.signature(function).parameters.values()
        specs = {key.name: (inputs or {}).get(key.name, tf.TensorSpec([None], tf.string)) for key in parameters}
        specs = {key: tf.TensorSpec(spec.shape, spec.dtype, name=key) for key, spec in specs.items()}
        defaults = {key.name: key.default for key in parameters if key.default is not key.empty}
        _SIGNATURES[task, name] = Signature(task, name, function, specs, defaults, **declaration)
        return function

    return register


def register_default(task: str, expected: Callable[[Any, Any], Answers], alone: str | None = None) -> None:
    """Adds the default signature of a task, `ModelGraph.answer`, and the same compiled by XLA."""
    shared: dict[str, Any] = {"batchable": True, "alone": alone, "expected": expected}
    register_signature(task, DEFAULT, **shared)(lambda graph, text: graph.answer(text))
    register_signature(
        task,
        XLA,
        available=lambda model, options: options.xla,
        compiled=True,
        warm_up=lambda graph: graph.buckets.warm_up(graph.read),
        **shared,
    )(lambda graph, text: graph.compiled_answer(text))


def signatures_of(run: Run, options: ExportOptions) -> list[Signature]:
    """Returns the signatures with which a run is exported; raises `InputError` for unknown names in the options."""
    of_task = [signature for signature in _SIGNATURES.values() if signature.task == run.spec.task]
    available = [signature for signature in of_task if signature.available(run.model, options)]
    # The default signature is always selected, since all clients rely on it; so is XLA's, which has its own option.
    return _selected(available, options.signatures)


def warmed_up(signatures: list[Signature], options: ExportOptions) -> list[Signature]:
    """Returns the signatures of an export that servers warm up; raises `InputError` for unknown names."""
    return _selected(signatures, options.warmup)


def _selected(signatures: list[Signature], selection: str) -> list[Signature]:
    """Returns the default signature, that of XLA and those that an option selects."""
    if selection == "all":
        return signatures
    names = [signature.name for signature in signatures]
    selected = [] if selection == "none" else [name.strip() for name in selection.split(",")]
    for name in selected:
        if name not in names:
            raise unknown_name("signature", name, names)
    return [signature for signature in signatures if signature.name in (DEFAULT, XLA, *selected)]


def stacked(arrays: Iterable[Any], fill: Any) -> list[Any]:
    """Returns arrays of equal rank stacked and padded at the end with `fill`, as nested lists."""
    arrays = [np.asarray(array, object if fill == "" else None) for array in arrays]
    result = np.full((len(arrays), *np.max([array.shape for array in arrays], axis=0)), fill, arrays[0].dtype)
    for row, array in zip(result, arrays, strict=True):
        row[tuple(map(slice, array.shape))] = array
    return list(result.tolist())
