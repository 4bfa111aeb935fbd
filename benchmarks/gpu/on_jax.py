"""The process of JAX: programs are traced one after the other and compiled in parallel, while others run."""

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
"""The number of programs that are compiled at the same time."""

Task = Mapping[str, Any]


class Program(Protocol):
    """A program that is compiled once and measured."""

    def lower(self) -> Any:
        """Returns the traced program, whose `compile` may be called in another thread."""

    def measure(self, compiled: Any, task: Task) -> Answer:
        """Returns the measurements."""


KINDS: dict[str, Callable[[Task], Program]] = {
    "translator": steps.TranslatorStep,
    "language_model": steps.LanguageModelStep,
    "fit": steps.Fit,
    "profile": steps.Profile,
    "packing": packing.BlocksStep,
    "attention": attention.Pass,
    "decoding": decoding.Greedy,
}


class ParallelCompiler:
    """Programs by the label of their task, traced in order by one thread and compiled by several, equal ones once."""

    def __init__(self, make: Callable[[Task], Program], threads: int = THREADS):
        self._make = make
        self._tracing, self._compiling = ThreadPoolExecutor(1), ThreadPoolExecutor(threads)
        self._traced: dict[str, Future[Any]] = {}
        self._compiled: dict[str, Future[Any]] = {}  # by the text of the program

    def begin(self, tasks: Sequence[Task]) -> None:
        """Queues programs that are not queued yet."""
        for task in tasks:
            if task["label"] not in self._traced:
                self._traced[task["label"]] = self._tracing.submit(self._trace, task)

    def _trace(self, task: Task) -> tuple[Program, Future[Any]]:
        program = self._make(task)
        lowered = program.lower()
        text = lowered.as_text()
        if text not in self._compiled:
            self._compiled[text] = self._compiling.submit(lowered.compile)
        return program, self._compiled[text]

    def take(self, task: Task) -> tuple[Program, Any]:
        """Waits for the compilation of a program, removes the program here, and returns it with its compiled form."""
        self.begin([task])
        program, compiled = self._traced.pop(task["label"]).result()
        return program, compiled.result()

    def wait(self, seconds: float) -> tuple[int, int]:
        """Waits for all programs, up to some seconds; returns the numbers of compiled programs and of all programs."""
        until = time.monotonic() + seconds
        traced = wait(self._traced.values(), timeout=seconds).done
        compiled = [future.result()[1] for future in traced if future.exception() is None]
        done = wait(compiled, timeout=max(0.0, until - time.monotonic())).done
        return len(done) + len(traced) - len(compiled), len(self._traced)  # `take` raises the errors of others

    @property
    def unfinished(self) -> int:
        """The number of programs that are not compiled yet."""
        done, count = self.wait(0)
        return count - done


class OnJAX(Library):
    """Ours, and JAX's own attention."""

    def __init__(self, task: Task):
        self.card = device_kind()
        names = ("jax", "jaxlib", "keras", "attention-zoo")
        self.versions = {name: version for name in names if (version := _version(name))}
        self._began, self._folder = task["began"], task["folder"]
        self._programs = ParallelCompiler(lambda task: KINDS[task["kind"]](task))

    def prepare(self, tasks: Sequence[Task]) -> None:
        self._programs.begin(tasks)

    def wait(self, seconds: float) -> Answer:
        done, count = self._programs.wait(seconds)
        remark = f"{done} of {count} programs compiled {time.time() - self._began:.0f} s after the start"
        return {"remark": remark}

    def measure(self, task: Task) -> Answer:
        program, compiled = self._programs.take(task)
        ready, unfinished = time.time() - self._began, self._programs.unfinished
        task = {**task, "card": self.card, "folder": self._folder}
        answer = {"peak_memory": _planned(compiled), **program.measure(compiled, task)}
        remarks = [answer.get("remark", ""), f"{unfinished} programs were compiled meanwhile" if unfinished else ""]
        return {
            **answer,
            "ready": ready,  # seconds from the start of the command until it was compiled
            "allocated_peak": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
            "remark": "; ".join(filter(None, remarks)),
        }


def _planned(compiled: Any) -> int | None:
    try:
        return planned_peak(compiled)
    except (AttributeError, NotImplementedError, jax.errors.JaxRuntimeError):  # of some programs from the cache
        return None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # ours may not be installed
        return ""


def use_cache(folder: str) -> None:
    """Makes JAX store all compiled programs in a folder, with XLA's autotuning."""
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "xla_gpu_per_fusion_autotune_cache_dir")


def run(channel: Any) -> None:
    """Responds to requests; the task contains the folder of the cache and the start of the command."""
    use_cache(os.path.join(channel.task["cache"], "jax"))
    serve(channel, OnJAX(channel.task))
