"""The processor: what the system reports of it, and the number of its cores for computations."""

import importlib
import os


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor(field: str) -> str:
    """Returns what Linux reports of the processor, such as its `"model name"` or `"flags"`; empty if it is unknown."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line for line in file if line.startswith(field)), "").partition(":")[2].strip()
    except OSError:  # not Linux
        return ""


def has_accelerator() -> bool:
    """Returns whether TensorFlow computes on an accelerator."""
    tf = importlib.import_module("tensorflow")
    return any(tf.config.list_physical_devices(kind) for kind in ("GPU", "TPU"))


def computing_cores() -> int:
    """Returns the number of cores on which TensorFlow computes; 1 with an accelerator or on another backend."""
    import keras

    return 1 if keras.backend.backend() != "tensorflow" or has_accelerator() else available_cores()
