"""The process of PyTorch: compiled models of the same sizes, and attention."""

import gc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.serving import Answer, Library, described, serve, take_turns, time_calls
from benchmarks.peers import pytorch
from benchmarks.peers.attention_kinds import operations
from benchmarks.peers.batches import FIRST, make_batch
from benchmarks.peers.pytorch_attention import make_pass
from benchmarks.peers.pytorch_language_model import LanguageModel

Task = Mapping[str, Any]
MODELS = {"translator": pytorch.Translator, "language_model": LanguageModel}


class OnTorch(Library):
    """The peers."""

    def __init__(self) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.card = torch.cuda.get_device_name(0) if self.device == "cuda" else "cpu"
        self.versions = {"torch": torch.__version__}
        self._models: dict[str, Any] = {}

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Compiles each model by taking a step; attention is compiled when it is measured."""
        for task in tasks:
            if task["kind"] in MODELS:
                self._training(task)
                self._finish()
                self.forget()

    def _training(self, task: Task) -> Any:
        """Returns a function that takes a step, and the number of parameters."""
        if task["label"] not in self._models:
            torch.manual_seed(0)
            model = MODELS[task["kind"]](task).to(self.device).train()
            batch = pytorch.as_tensors(_batch(task), self.device)
            step = pytorch.make_training(task, model, self.device)
            step(*batch)
            self._models[task["label"]] = (lambda: step(*batch)), pytorch.number_of_weights(model)
        return self._models[task["label"]]

    def measure(self, task: Task) -> Answer:
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        answer = self._step(task) if task["kind"] in MODELS else self._pass(task)
        peak = torch.cuda.max_memory_allocated() if self.device == "cuda" else None
        return {**answer, "peak_memory": peak}

    def _step(self, task: Task) -> Answer:
        step, parameters = self._training(task)
        seconds = take_turns(step, self._finish, task)
        loss = step().item()
        tokens, unit = task["batch"] * task["target_length"], task["unit"]
        answer = described(seconds, tokens, unit, task["operations"], self.card)
        del self._models[task["label"]]
        return {**answer, "parameters": parameters, "loss": loss}

    def _pass(self, task: Task) -> Answer:
        seconds, gradients = time_calls(make_pass(task, self.device), self._finish, task)
        is_finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
        answer = described(seconds, task["batch"] * task["length"], "tokens", operations(task), self.card)
        return {**answer, "remark": "" if is_finite else "gradients are not finite"}

    def _finish(self, result: Any = None) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def forget(self) -> None:
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()


def _batch(task: Task) -> list[Any]:
    """Returns the tokens of a batch: the inputs of a module, and those to predict."""
    if task["kind"] == "translator":
        return list(make_batch(task))
    shape = (task["batch"], task["target_length"] + 1)
    rows = np.random.default_rng(0).integers(FIRST, task["vocabulary"], shape)
    return [rows[:, :-1], rows[:, 1:]]


def run(channel: Any) -> None:
    """Responds to requests."""
    torch.set_float32_matmul_precision("high")
    serve(channel, OnTorch())
