"""Converts models to ONNX, for ONNX Runtime and others, with PyTorch's own exporter.

The files compute logits or vectors from token ids; the tokenizers are separate files. Batch sizes, text lengths and the
capacity of a cache are dynamic.
"""

import contextlib
import importlib
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from export.parts import TRACED, Part, model_parts, traced_feeds
from zoo.errors import InputError
from zoo.layers.attention.wide_state import states_as_floats

TOLERANCE = 1e-4
"""The largest difference between ONNX Runtime and Keras."""
LARGEST_FILE = 3 * 2**29
"""Size of the weights in bytes above which they stand in a file of their own, since ONNX files hold at most 2 GB."""

# Batch size, length and capacity of a cache, all unequal to those of `TRACED[0]`, by which the graph is made.
_COMPARED = [(1, 5, 9), (4, 12, 17), (5, 3, 6)]
_STEPS = 3  # compared one after another, so that a state has been read and written


def check_backend() -> None:
    """Checks that PyTorch is the backend and that all packages of the extra `onnx` are installed.

    Raises:
        InputError: If the backend is another one.
        ModuleNotFoundError: If a package is missing; commands name the extra.
    """
    if keras.backend.backend() != "torch":
        raise InputError(f"onnx: needs KERAS_BACKEND=torch. Received: {keras.backend.backend()}.")
    for package in ("onnx", "onnxscript", "onnxruntime"):  # PyTorch imports the first two late
        importlib.import_module(package)


def write_onnx(model: keras.Model, task: str, folder: Path, special_ids: Mapping[str, int]) -> None:
    """Writes a model as ONNX files, after a comparison with Keras, and `onnx.json`, which describes how to call them.

    The files are `encode.onnx` and `step.onnx` for a translator, `step.onnx` for a language model and `model.onnx` for
    other models; see `export.parts.model_parts`. Weights of more than `LARGEST_FILE` bytes are in `NAME.onnx.data`.

    Args:
        model: The model.
        task: The model's task; see `zoo.registry`.
        folder: A folder that exists.
        special_ids: Ids by name, for `onnx.json`.

    Raises:
        InputError: If the backend is not PyTorch, the exporter cannot convert the model (such as loops over tokens),
            its initial state is not zero, or ONNX Runtime differs by more than `TOLERANCE`.
    """
    check_backend()
    files = {}
    with _without_gradients_and_warnings(), states_as_floats():
        try:
            for name, part in model_parts(model, task, "next_state").items():
                path = folder / f"{name}.onnx"
                files[path.name] = _write_part(model, part, path)
        except InputError:
            raise
        except Exception as error:  # PyTorch, its exporter and ONNX Runtime raise classes of their own
            raise InputError(f"onnx: {type(model).__name__} cannot be converted: {_reason(error)}.") from error
    description = {"task": task, "special_ids": dict(special_ids), "files": files}
    (folder / "onnx.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def _write_part(model: keras.Model, part: Part, path: Path) -> dict[str, Any]:
    """Writes and checks one file and returns its description."""
    import torch
    from onnxruntime import InferenceSession, SessionOptions

    feeds, others = traced_feeds("onnx", model, part)
    pairs = [list(zip(feeds[name].shape, others[name].shape, strict=True)) for name in feeds]
    dynamic = [
        {axis: torch.export.Dim.DYNAMIC for axis, (size, other) in enumerate(pair) if size != other} for pair in pairs
    ]

    class Module(torch.nn.Module):
        """The part as PyTorch's exporter takes it."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model  # so that the exporter finds the weights

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return tuple(part.function(**dict(zip(feeds, tensors, strict=True))).values())

    outputs, shapes = (_answers(part, arrays) for arrays in (feeds, others))
    program = torch.onnx.export(
        Module().eval(),
        tuple(map(torch.as_tensor, feeds.values())),
        dynamo=True,
        dynamic_shapes=(tuple(dynamic),),
        input_names=[*feeds],
        output_names=[*outputs],
        verbose=False,
    )
    assert program is not None, "dynamo=True returns a program"
    data = _save(program, path, sum(weight.value.nbytes for weight in model.weights))
    options = SessionOptions()
    options.log_severity_level = 4  # its errors are raised
    session = InferenceSession(path, options, providers=["CPUExecutionProvider"])
    difference = max(_difference(session, part, part.feeds(*sizes)) for sizes in _COMPARED)
    if not difference <= TOLERANCE:
        raise InputError(
            f"onnx: {path.name} of {type(model).__name__} differs from Keras by {difference:.1e}; at most "
            f"{TOLERANCE:.0e} is allowed."
        )
    used = {value.name for value in session.get_inputs()}
    batches, lengths, capacities = zip(*TRACED, strict=True)
    first, second = (part.least_capacity + capacity for capacity in capacities)
    axes = {batches: "batch", lengths: "length", (first, second): "capacity"}
    inputs = [_described(name, feeds[name], others[name], axes) for name in feeds if name in used]
    return {
        "inputs": inputs,
        "outputs": [_described(name, outputs[name], shapes[name], axes) for name in outputs],
        "largest_difference": difference,
        **({"external_data": data} if data else {}),
    }


def _save(program: Any, path: Path, size: int) -> str:
    """Writes a file; returns the name of the file of its weights, empty if they are in the same file.

    Args:
        program: The exported program.
        path: The file.
        size: The size of the weights in bytes.
    """
    is_large = size > LARGEST_FILE
    program.save(path, external_data=is_large)
    return f"{path.name}.data" if is_large else ""


def _answers(part: Part, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the outputs of Keras."""
    import torch

    outputs = part.function(**{name: torch.as_tensor(array) for name, array in feeds.items()})
    return {name: np.asarray(keras.ops.convert_to_numpy(tensor)) for name, tensor in outputs.items()}


def _difference(session: Any, part: Part, feeds: dict[str, np.ndarray]) -> float:
    """Returns the largest difference of any output between ONNX Runtime and Keras, over several steps of a decoder."""
    names = [value.name for value in session.get_inputs()]
    largest, steps = 0.0, _STEPS if "last" in feeds else 1
    for _ in range(steps):
        expected = _answers(part, feeds)
        outputs = dict(zip(expected, session.run([*expected], {name: feeds[name] for name in names}), strict=True))
        for name, array in expected.items():
            if outputs[name].shape != array.shape:
                raise InputError(f"onnx: {name} has the shape {outputs[name].shape}, in Keras {array.shape}.")
            distance = np.abs(outputs[name].astype("float64") - array.astype("float64"))
            largest = max(largest, float(distance.max(initial=0.0)))
            if np.isnan(distance).any():
                return float("nan")
        feeds = {name: outputs.get(f"next_{name}", array) for name, array in feeds.items()}
    return largest


def _described(name: str, array: np.ndarray, other: np.ndarray, axes: Mapping[tuple[int, ...], str]) -> dict[str, Any]:
    """Returns name, type and shape of an input or output; a dynamic size has a name, or is `None` if it has none."""
    pairs = zip(array.shape, other.shape, strict=True)
    shape = [size if size == second else axes.get((size, second)) for size, second in pairs]
    return {"name": name, "dtype": str(array.dtype), "shape": shape}


def _reason(error: BaseException) -> str:
    """Returns the reason of a failed conversion as one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        return "the exporter does not support loops over tokens, which recurrent layers need"
    if "inferred a static shape" in str(error):
        return "the exporter fixes a size that must be free"
    text = re.sub(r"Load model from \S+ failed:", "", str(error))  # the temporary name would not help the user
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300].rstrip(".:")


@contextlib.contextmanager
def _without_gradients_and_warnings() -> Iterator[None]:
    """Disables gradients, and the exporter's messages, which are for its developers."""
    import torch

    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
