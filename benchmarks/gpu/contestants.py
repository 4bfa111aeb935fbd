"""The measuring processes, one for JAX and one for PyTorch, which share the GPU's memory."""

import json
import sys
from pathlib import Path

from benchmarks.gpu.figure import JAX, TORCH
from benchmarks.runner.process import Process

ADAPTERS = {JAX: "benchmarks.gpu.on_jax:run", TORCH: "benchmarks.gpu.on_torch:run"}
SHARE_OF_JAX = "0.55"
"""Of the GPU's memory: JAX allocates it when needed and frees nothing, and PyTorch needs up to a third."""


def start(library: str, compiled: Path, output: Path, began: float) -> Process:
    """Starts the process of a library.

    Args:
        library: `JAX` or `TORCH`.
        compiled: Folder of compiled programs.
        output: Folder of logs and profiles.
        began: When the command was started, as `time.time()`.
    """
    task = {
        "adapter": ADAPTERS[library],
        "cache": str(compiled.resolve()),
        "folder": str(output.resolve()),
        "began": began,
    }
    command = [sys.executable, "-m", "benchmarks.runner.worker", json.dumps(task)]
    return Process(command, variables(library, compiled), output / f"{library}.log")


def variables(library: str, compiled: Path) -> dict[str, str]:
    """Returns additional environment variables of a process."""
    if library == TORCH:
        folders = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
        return {"KERAS_BACKEND": "torch", **{name: str(compiled / folder) for name, folder in folders.items()}}
    return {
        "KERAS_BACKEND": "jax",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": SHARE_OF_JAX,
    }
