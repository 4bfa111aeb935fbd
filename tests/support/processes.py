"""Trainings of several real processes on this machine, each with some virtual devices."""

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (
    "model.num_layers=1 model.model_dim=8 model.intermediate_dim=12 model.num_heads=2 model.num_key_value_heads=2 "
    "model.dropout=0.1 "
    "data.tokenizer=chars data.max_length=11 training.max_steps=6 training.eval_every=2 training.batch_tokens=80 "
    "training.precision=float32 training.patience=0 training.average_checkpoints=2 training.learning_rate=0.02 "
    "training.warmup_steps=2"
).split()


def write_lines(folder, seed=0):
    """Writes a running text and returns its SPEC."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in (("train", 60), ("val", 6), ("test", 3)):
        lines = ["".join(chance.choices("abcdef ", k=chance.randrange(3, 12))) for _ in range(size)]
        (folder / f"{split}.txt").write_text("x" + "\nx".join(lines) + "\n", encoding="utf-8")
    return f"lines:{folder}"


def quiet_environment():
    """Returns the environment of a user: importing JAX changes what TensorFlow logs in child processes."""
    return {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Trainings:
    """The processes of one training: `start` them, and `wait` for their exit statuses and what they said."""

    def __init__(self, workdir, count, devices=1, cache=None, port=None, join_seconds=120):
        self.workdir, self.count, self.port = Path(workdir), count, port or free_port()
        self.join_seconds = join_seconds
        flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
        self.environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        if cache:
            self.environment |= {
                "JAX_COMPILATION_CACHE_DIR": str(cache),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        self.running = {}

    def start(self, *words, only=None, folder=ROOT, **environment):
        """Starts all processes, or one, in a folder."""
        for number in range(self.count) if only is None else [only]:
            command = [sys.executable, "-m", "training.train", "--workdir", str(self.workdir), *words]
            if self.count > 1:
                command += ["--coordinator", f"127.0.0.1:{self.port}", "--num_processes", str(self.count)]
                command += ["--process_id", str(number), "--join_seconds", str(self.join_seconds)]
            self.running[number] = subprocess.Popen(
                command,
                cwd=folder,
                env={"PYTHONPATH": str(ROOT)} | self.environment | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        return self

    def wait(self, timeout=400):
        """Returns exit status, output and errors of each process."""
        try:
            return {
                number: (process.communicate(timeout=timeout)[::-1], process.returncode)[::-1]
                for number, process in self.running.items()
            }
        finally:
            self.close()

    def close(self):
        for process in self.running.values():
            if process.poll() is None:
                process.kill()

    def log(self):
        """Returns the records of the run without times."""
        timed = ("seconds", "symbols_per_second")
        records = [json.loads(line) for line in (self.workdir / "metrics.jsonl").read_text().splitlines()]
        return [{key: value for key, value in record.items() if key not in timed} for record in records]
