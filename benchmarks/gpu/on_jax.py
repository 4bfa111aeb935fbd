"""The process of JAX: programs are traced one after the other and compiled side by side, while others run."""

import importlib.metadata
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

import jax

from benchmarks.gpu import attention, decoding, packing, steps
from benchmarks.gpu.serving import Answer, Library, serve
from training.hardware.compiled_step import planned_peak
from training.hardware.peaks import device_kind

THREADS = 6
"""Programs that are compiled at the same time."""

Task = Mapping[str, Any]


class Program(Protocol):
    """What is compiled once and measured."""

    def lower(self) -> Any:
        """Returns the traced program, whose `compile` may be called in another thread."""

    def measure(self, compiled: Any, task: Task) -> Answer:
        """Returns what was measured with it."""


KINDS: dict[str, Callable[[Task], Program]] = {
    "translator": steps.TranslatorStep,
    "language_model": steps.LanguageModelStep,
    "fit": steps.Fit,
    "profile": steps.Profile,
    "packing": packing.BlocksStep,
    "attention": attention.Pass,
    "decoding": decoding.Greedy,
}


class SideBySide:
    """Programs by the label of their task: traced in order by one thread, compiled by several, equal ones once."""

    def __init__(self, make: Callable[[Task], Program], threads: int = THREADS):
        self._make = make
        self._tracing, self._compiling = ThreadPoolExecutor(1), ThreadPoolExecutor(threads)
        self._coming: dict[str, Future[Any]] = {}
        self._compiled: dict[str, Future[Any]] = {}  # by the text of the program

    def begin(self, tasks: Sequence[Task]) -> None:
        """Queues programs that were not begun yet."""
        for task in tasks:
            if task["label"] not in self._coming:
                self._coming[task["label"]] = self._tracing.submit(self._trace, task)

    def _trace(self, task: Task) -> tuple[Program, Future[Any]]:
        program = self._make(task)
        lowered = program.lower()
        text = lowered.as_text()
        if text not in self._compiled:
            self._compiled[text] = self._compiling.submit(lowered.compile)
        return program, self._compiled[text]

    def take(self, task: Task) -> tuple[Program, Any]:
        """Returns a program and what was compiled of it, as soon as that is done; it is then forgotten here."""
        self.begin([task])
        program, compiled = self._coming.pop(task["label"]).result()
        return program, compiled.result()

    def wait(self, seconds: float) -> tuple[int, int]:
        """Waits for all, at most so long; returns how many are compiled, and how many there are."""
        until = time.monotonic() + seconds
        traced = wait(self._coming.values(), timeout=seconds).done
        compiled = [each.result()[1] for each in traced if each.exception() is None]
        done = wait(compiled, timeout=max(0.0, until - time.monotonic())).done
        return len(done) + len(traced) - len(compiled), len(self._coming)  # what fails is reported when it is taken

    @property
    def unfinished(self) -> int:
        """How many are not compiled yet."""
        done, count = self.wait(0)
        return count - done


class OnJAX(Library):
    """Ours, and the attention that comes with JAX."""

    def __init__(self, task: Task):
        self.card = device_kind()
        names = ("jax", "jaxlib", "keras", "attention-zoo")
        self.versions = {name: version for name in names if (version := _version(name))}
        self._began, self._folder = task["began"], task["folder"]
        self._programs = SideBySide(lambda task: KINDS[task["kind"]](task))

    def prepare(self, tasks: Sequence[Task]) -> None:
        self._programs.begin(tasks)

    def wait(self, seconds: float) -> Answer:
        done, count = self._programs.wait(seconds)
        remark = f"{done} of {count} programs compiled {time.time() - self._began:.0f} s after the start"
        return {"remark": remark}

    def measure(self, task: Task) -> Answer:
        program, compiled = self._programs.take(task)
        ready, beside = time.time() - self._began, self._programs.unfinished
        told = {**task, "card": self.card, "folder": self._folder}
        answer = {"peak_memory": _planned(compiled), **program.measure(compiled, told)}
        remarks = [answer.get("remark", ""), f"{beside} programs were compiled meanwhile" if beside else ""]
        return {
            **answer,
            "ready": ready,  # seconds from the start of the command until it was compiled
            "allocated_peak": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
            "remark": "; ".join(filter(None, remarks)),
        }


def _planned(compiled: Any) -> int | None:
    try:
        return planned_peak(compiled)
    except (AttributeError, NotImplementedError, jax.errors.JaxRuntimeError):  # not of every program from the cache
        return None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # ours may not be installed
        return ""


def use_cache(folder: str) -> None:
    """Makes JAX keep everything that it compiles in a folder, with what XLA has tried out."""
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "xla_gpu_per_fusion_autotune_cache_dir")


def run(channel: Any) -> None:
    """Answers requests; the task has the folder of the cache and the time at which the command began."""
    use_cache(os.path.join(channel.task["cache"], "jax"))
    serve(channel, OnJAX(channel.task))
