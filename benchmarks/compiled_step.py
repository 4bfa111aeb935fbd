"""Compiles a training step for a mesh without running it: operations, memory, and bytes that devices send.

`KERAS_BACKEND=jax python -m benchmarks.compiled_step [--model NAME] [--mesh AXES] [--batch N] [--length N] [--remat]`

XLA_FLAGS=--xla_force_host_platform_device_count=8 simulates eight devices on a processor. The results are those of one
device.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from benchmarks.runner.command import CommandParser
from training.config.mesh import parse_mesh
from training.hardware.compiled_step import compile_step, step_cost
from training.hardware.mesh import Mesh
from training.optimization.rematerialization import rematerialize
from zoo.registry import create_model


def report(
    name: str,
    axes: Mapping[str, int],
    batch: int,
    length: int,
    vocabulary: int,
    dtype: str = "float32",
    remat: bool = False,
) -> dict[str, Any]:
    """Returns the cost of a translator's step on each device of a mesh."""
    mesh = Mesh(axes, keras.distribution.list_devices()[: math.prod(axes.values())])
    with mesh.distribution().scope():
        model = create_model(name, source_vocab_size=vocabulary, target_vocab_size=vocabulary, dtype=dtype)
        if remat:
            rematerialize(model)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(), loss=loss)
        model.optimizer.build(model.trainable_variables)
        texts = np.full((batch, length), 5, "int32")
        compiled = compile_step(model, ({"source": texts, "target": texts}, texts))
    return {
        "model": name,
        "mesh": str(mesh),
        "dtype": dtype,
        "remat": remat,
        "weights": model.count_params(),
        **step_cost(compiled),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("compiled_step", __doc__.splitlines()[0])
    parser.add_argument("--model", default="transformer_tiny", help="a translator (transformer_tiny)")
    parser.add_argument("--mesh", default="data=1", help="as training.mesh (data=1)")
    parser.add_count("batch", 64, "sentences of all devices")
    parser.add_count("length", 16, "tokens of each on either side")
    parser.add_count("vocabulary", 8000, "tokens of each side")
    parser.add_argument("--dtype", default="float32", help="as of models, such as mixed_bfloat16 (float32)")
    parser.add_argument("--remat", action="store_true", help="as training.remat")
    options = parser.parse_args(arguments)
    if keras.backend.backend() != "jax":
        parser.error(f"set KERAS_BACKEND=jax; the backend is {keras.backend.backend()}")
    sizes = (options.batch, options.length, options.vocabulary)
    print(json.dumps(report(options.model, parse_mesh(options.mesh), *sizes, options.dtype, options.remat), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
