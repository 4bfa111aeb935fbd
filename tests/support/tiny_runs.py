"""Tiny data and tiny runs, for tests of all that comes after training."""

import random
from pathlib import Path

from zoo.runtime.cli import run_command

RECURRENT = (
    "model.embedding_dim=16 model.units=24 model.attention_units=16 model.readout_units=16 training.max_steps=60 "
    "training.eval_every=30 training.batch_tokens=1024 training.learning_rate=0.01 training.warmup_steps=5 "
    "training.precision=mixed_bfloat16 training.average_checkpoints=2 training.seed=11"
).split()
TRANSFORMER = (
    "model.num_layers=1 model.model_dim=16 model.intermediate_dim=24 model.num_heads=2 model.dropout=0.1 "
    "training.max_steps=56 training.eval_every=20 training.batch_tokens=256 training.learning_rate=0.02 "
    "training.warmup_steps=10 training.precision=float32 training.average_checkpoints=2 data.vocab_size=120"
).split()

CLASSIFIER = (
    "model.model_dim=16 model.dropout=0.0 training.max_steps=80 training.eval_every=40 training.batch_tokens=512 "
    "training.learning_rate=0.01 training.warmup_steps=5 training.precision=float32 training.average_checkpoints=1"
).split()
LANGUAGE_MODEL = (
    "model.num_layers=1 model.model_dim=24 model.intermediate_dim=32 model.num_heads=2 training.max_steps=60 "
    "training.eval_every=30 training.batch_tokens=512 training.learning_rate=0.01 training.warmup_steps=5 "
    "training.precision=float32 training.average_checkpoints=1 data.max_length=12"
).split()
# Trained in half a second, with all that a checkpoint may have to hold.
CONVOLUTIONS = (
    "model.embedding_dim=3 model.num_filters=2 model.filter_widths=2 model.dropout=0.1 training.max_steps=9 "
    "training.eval_every=3 training.batch_tokens=512 training.learning_rate=0.01 training.warmup_steps=2 "
    "training.precision=float32 training.average_checkpoints=2 training.ema=0.9 training.accumulate_steps=2"
).split()

_WORDS = {
    "articles": ("a ein", "the das", "my mein"),
    "adjectives": ("small kleines", "red rotes", "old altes", "green grünes", "great… großartig…"),
    "nouns": ("horse Pferd", "child Kind", "house Haus", "book Buch", "girl Mädchen", "😀 😀"),
    "verbs": ("sleeps schläft", "sees sieht", "burns brennt", "runs läuft"),
}


def write_text(folder: Path, seed: int = 0, sizes: tuple[int, int, int] = (300, 20, 20)) -> str:
    """Writes parallel text of short sentences and returns its SPEC, `text:FOLDER:en-de`."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in zip(("train", "val", "test"), sizes, strict=True):
        lines = [[chance.choice(words).split() for words in _WORDS.values()] for _ in range(size)]
        lines = [line + [["and", "und"], *line] * chance.randrange(2) for line in lines]
        for side, language in enumerate(("en", "de")):
            text = "".join(" ".join(word[side] for word in line) + " .\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return f"text:{folder}:en-de"


def write_labelled(folder: Path, seed: int = 0, sizes: tuple[int, int, int] = (400, 20, 40)) -> str:
    """Writes labelled text in which the first noun decides, and returns its SPEC, `tsv:FOLDER`."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    nouns = {"horse": "animal", "girl": "human", "house": "thing", "child": "human", "book": "thing"}
    for split, size in zip(("train", "val", "test"), sizes, strict=True):
        rows = []
        for _ in range(size):
            first, second = chance.sample(sorted(nouns), 2)
            words = chance.choices(["a", "the", "red", "old"], k=chance.randrange(3))
            rows.append(f"{' '.join([*words, first, 'sees', second])}\t{nouns[first]}\n")
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    return f"tsv:{folder}"


def write_lines(folder: Path, seed: int = 0, sizes: tuple[int, int, int] = (300, 30, 30)) -> str:
    """Writes plain text and returns its SPEC, `lines:FOLDER`."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in zip(("train", "val", "test"), sizes, strict=True):
        lines = ["abcdefgh" * chance.randint(1, 3) if chance.random() < 0.9 else "" for _ in range(size)]
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return f"lines:{folder}"


def run_quietly(main, *argv) -> int:
    """Runs a command in this process and returns its exit status, that of bad usage included."""
    try:
        return run_command(main, [str(argument) for argument in argv])
    except SystemExit as usage:
        return usage.code


def train(model: str, spec: str, workdir: Path, *arguments) -> int:
    """Runs `training.train` in this process and returns its exit status."""
    from training.train import main

    return run_quietly(main, "--model", model, "--data", spec, "--workdir", workdir, *arguments)
