"""What an imported model gives, beside what the software gives that its checkpoint is of."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

import zoo
from benchmarks.parity.reference import Reference
from export.client import Client
from export.saved_model import export_saved_model
from export.serve import ModelServer
from zoo.checkpoints.vocabulary import arrange
from zoo.vocabulary import END, START, UNKNOWN, pad

BATCH = 7
"""Texts in a batch with padding."""
SERVED_BATCH = 32
BEAMS = 5
Ask = Callable[[str, list[str]], Mapping[str, Any]]  # from a signature and texts to its outputs


@dataclass(frozen=True)
class Count:
    """How many answers are equal, and those that are not: the text, our answer and the other one."""

    asked: int
    different: Sequence[tuple[str, str, str]] = ()

    def __str__(self) -> str:
        """Returns the cell of a table."""
        equal = f"{self.asked - len(self.different):,}"
        return f"{equal} of {self.asked:,}" if not self.different else f"**{equal}** of {self.asked:,}"


@dataclass
class Result:
    """What came of a family.

    Attributes:
        family: Its name.
        where: Machine, commit and versions.
        logits: Largest differences relative to the largest logit, by way of computing them.
        answers: Counts of equal answers, by way of searching and place.
        distinct: How many different answers the reference has.
        tokenizer: The software that ids are compared with; empty where those of another family say it.
        ids: How many ids there are.
        tokens: Counts of lines with equal ids, and of those that lead back to the same text.
    """

    family: str
    where: str = ""
    logits: dict[str, float] = field(default_factory=dict)
    answers: dict[str, Count] = field(default_factory=dict)
    distinct: int = 0
    tokenizer: str = ""
    ids: int = 0
    tokens: dict[str, Count] = field(default_factory=dict)

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        """Returns a result from plain data."""
        counts = {name: {way: Count(**count) for way, count in saved[name].items()} for name in ("answers", "tokens")}
        return cls(**{**saved, **counts})


def relative(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Returns the largest difference of arrays, relative to the largest value expected."""
    largest = max(float(np.abs(each).max()) for each in expected)
    return max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True)) / largest


def compare(texts: Sequence[str], found: Sequence[str], expected: Sequence[str]) -> Count:
    """Returns how many answers are equal."""
    rows = zip(texts, found, expected, strict=True)
    return Count(len(texts), [(text, ours, theirs) for text, ours, theirs in rows if ours != theirs])


class Ids:
    """Our ids and those of a checkpoint.

    Args:
        tokenizer: One of our tokenizers.
        size: The number of tokens of the checkpoint.
        order: The id there of each of our ids. Default: what the tokenizer says.
    """

    def __init__(self, tokenizer: Any, size: int, order: Sequence[int] = ()):
        known = order or _original_ids(tokenizer)
        # Rows that only fill up a table have no id in the tokenizer; like all others, they are in order.
        others = iter(sorted(set(range(size)) - set(known)))
        self.original = [
            next(others, -1) if ours > UNKNOWN and index < 0 else index for ours, index in enumerate(known)
        ]
        self.ours = {index: ours for ours, index in reversed(list(enumerate(self.original))) if index >= 0}
        self.order = [self.ours[index] for index in range(size)] if len(self.ours) >= size else []

    def theirs(self, row: Sequence[int]) -> list[int]:
        """Returns a row of our ids as theirs."""
        return [self.original[i] for i in row]


def _original_ids(tokenizer: Any) -> Sequence[int]:
    if hasattr(tokenizer, "original_ids"):
        return list(tokenizer.original_ids)
    size = tokenizer.vocab_size  # characters, of which the last one is what is unknown
    return arrange(size, 1, 2, 0, size - 1).original_ids


class Comparison:
    """An imported model beside its reference.

    Args:
        workdir: The work directory.
        reference: The model of the other software.
    """

    def __init__(self, workdir: Path, reference: Reference):
        self.workdir, self.reference = workdir, reference
        self.run: Any = zoo.load(workdir)
        self.task = self.run.spec.task
        self.read = Ids(self.run.tokenizers[0], reference.size, reference.order)
        self.written = Ids(self.run.tokenizers[-1], reference.size, reference.order)

    def logits(self, texts: Sequence[str]) -> dict[str, float]:
        """Returns the largest differences of logits, alone, in batches with padding, and step by step."""
        rows = self.run.ids(texts)
        if self.task == "seq2seq":
            return self._translator_logits(rows)
        if self.task == "sentence_encoder":
            expected = self.reference.logits([self.read.theirs(row) for row in rows])
            return {
                way: relative(self.run.embed_text(texts, batch_size=size), expected)
                for way, size in (("alone", 1), ("padded", BATCH))
            }
        expected = self.reference.logits([self.read.theirs(row) for row in rows])
        is_classifier = self.task == "classifier"
        alone = [self._own(self.run.model({"tokens": np.array([row], "int32")})[0], is_classifier) for row in rows]
        padded: list[np.ndarray] = []
        for batch in _batches(rows):
            together = self.run.model({"tokens": _padded(batch)})
            padded += [
                self._own(each if is_classifier else each[: len(row)], is_classifier)
                for each, row in zip(together, batch, strict=True)
            ]
        found = {"alone": relative(alone, expected), "padded": relative(padded, expected)}
        if not is_classifier:
            stepped = [each for batch in _batches(rows) for each in self._stepped(batch)]
            found["stepwise"] = relative(stepped, alone)
        return found

    def _own(self, logits: Any, as_is: bool = False) -> np.ndarray:
        """Returns logits in the order of the checkpoint."""
        values = np.asarray(logits)
        return values if as_is else values[..., self.written.order]

    def _stepped(self, batch: Sequence[Sequence[int]], memory: Any = None) -> list[np.ndarray]:
        """Returns the logits of rows of what is read before each token, computed one token at a time."""
        tokens, steps = pad(batch), []
        model = self.run.model
        state = model.initial_state(len(batch)) if memory is None else model.initial_state(memory)
        for last in tokens.T:
            logits, state = model.decode_step(last, state) if memory is None else model.decode_step(last, state, memory)
            steps.append(self._own(logits))
        return [each[: len(row)] for each, row in zip(np.stack(steps, axis=1), batch, strict=True)]

    def _translator_logits(self, rows: Sequence[list[int]]) -> dict[str, float]:
        sources = [self.read.theirs(row) for row in rows]
        written = self.reference.write(sources, 1)
        expected = self.reference.logits(sources, written)
        targets = [[START, *(self.written.ours[i] for i in row)] for row in written]
        model, alone, padded, stepped = self.run.model, [], [], []
        for source, target in zip(rows, targets, strict=True):
            pair = {"source": np.array([source], "int32"), "target": np.array([target], "int32")}
            alone.append(self._own(model(pair)[0]))
        for batch, batch_targets in zip(_batches(rows), _batches(targets), strict=True):
            source = _padded(batch)
            together = model({"source": source, "target": _padded(batch_targets)})
            padded += [self._own(each[: len(row)]) for each, row in zip(together, batch_targets, strict=True)]
            stepped += self._stepped(batch_targets, model.encode(source, training=False))
        if self.reference.log_probs:
            token_ids = [[*target[1:], END] for target in targets]
            alone, padded, stepped = (
                [self._log_probs(*pair) for pair in zip(each, token_ids, strict=True)]
                for each in (alone, padded, stepped)
            )
        return {
            "alone": relative(alone, expected),
            "padded": relative(padded, expected),
            "stepwise": relative(stepped, alone),
        }

    def _log_probs(self, logits: np.ndarray, token_ids: Sequence[int]) -> np.ndarray:
        places = {ours: place for place, ours in enumerate(self.written.order)}
        logs = logits - np.logaddexp.reduce(logits.astype("float64"), axis=1, keepdims=True)
        return logs[np.arange(len(token_ids)), [places[token] for token in token_ids]]

    def answers(self, texts: Sequence[str], folder: Path, served: bool) -> tuple[dict[str, Count], int]:
        """Returns by way of asking how many answers are equal, and how many different ones the reference has.

        Args:
            texts: What is asked.
            folder: An empty folder, for the exported model.
            served: Whether it is asked over gRPC as well.
        """
        if self.task == "language_model":  # of a prompt that leaves no room, nobody writes anything
            pairs = zip(texts, self.run.ids(texts), strict=True)
            texts = [text for text, row in pairs if len(row) < self.reference.max_length]
        expected, found = self.all_answers(texts, folder, served)
        counts = {
            f"{way}, {place}": compare(texts, answers[way], expected[way])
            for way in expected
            for place, answers in found.items()
        }
        return counts, len(set(expected["greedy"]))

    def all_answers(
        self, texts: Sequence[str], folder: Path, served: bool
    ) -> tuple[dict[str, list[str]], dict[str, dict[str, list[str]]]]:
        """Returns the answers of the reference by way of searching, and ours by place and way; see `answers`."""
        expected = self._expected([self.read.theirs(row) for row in self.run.ids(texts)])
        found = {"Python": self._in_python(texts)}
        base = folder / "exported"
        version = export_saved_model(self.workdir, base, **self._export_options())
        loaded = tf.saved_model.load(str(version))
        found["SavedModel"] = self._of_signatures(
            lambda name, batch: loaded.signatures[name](text=tf.constant(batch)), texts
        )
        if served:
            with _client(base) as ask:
                found["gRPC"] = self._of_signatures(ask, texts)
        return expected, found

    def _expected(self, rows: Sequence[list[int]]) -> dict[str, list[str]]:
        """Returns the answers of the reference by way of searching."""
        reference = self.reference
        if self.task == "classifier":
            return {"greedy": [self.run.classes[int(row.argmax())] for row in reference.logits(rows)]}
        decode = reference.vocabulary.decode
        if self.task == "language_model":
            first = 1 if self.run.model.start_symbol else 0
            whole, prompts = (decode([row[first:] for row in each]) for each in (reference.write(rows, 1), rows))
            return {"greedy": [text[len(prompt) :] for text, prompt in zip(whole, prompts, strict=True)]}
        return {way: decode(reference.write(rows, beams)) for way, beams in (("greedy", 1), ("beam", BEAMS))}

    def _in_python(self, texts: Sequence[str]) -> dict[str, list[str]]:
        if self.task == "classifier":
            return {"greedy": [answer.label for answer in self.run.classify(texts)]}
        if self.task == "language_model":
            return {"greedy": self.run.generate(texts, **self._export_options())}
        options = {name: getattr(self.reference, name) for name in ("rules", "max_length", "force_end")}
        return {
            way: self.run.translate(texts, beam_size=beams, **options)
            for way, beams in (("greedy", 1), ("beam", BEAMS))
        }

    def _export_options(self) -> dict[str, Any]:
        if self.task == "classifier":
            return {}
        if self.task == "language_model":  # whose length has the start in it there
            return {"max_length": self.reference.max_length - self.run.model.start_symbol}
        return {"nbest": BEAMS} | {name: getattr(self.reference, name) for name in ("max_length", "rules", "force_end")}

    def _of_signatures(self, ask: Ask, texts: Sequence[str]) -> dict[str, list[str]]:
        """Returns the answers of an exported model by way of searching."""
        outputs = {"greedy": ("serving_default", "label" if self.task == "classifier" else "text")}
        if self.task == "seq2seq":
            outputs["beam"] = "nbest", "texts"
        found: dict[str, list[str]] = {}
        for way, (signature, output) in outputs.items():
            values = [np.asarray(ask(signature, list(batch))[output]) for batch in _batches(texts, SERVED_BATCH)]
            best = [each[:, 0] if each.ndim == 2 else each for each in values]
            found[way] = [_text(text) for text in np.concatenate(best).tolist()]
        return found

    def served_vectors(self, texts: Sequence[str], folder: Path) -> float:
        """Returns the largest difference of the vectors of an exported sentence encoder."""
        version = export_saved_model(self.workdir, folder / "exported")
        embed = tf.saved_model.load(str(version)).signatures["embed_text"]
        batches = [embed(text=tf.constant(batch))["embeddings"].numpy() for batch in _batches(texts, SERVED_BATCH)]
        expected = self.reference.logits([self.read.theirs(row) for row in self.run.ids(texts)])
        return relative(np.concatenate(batches), expected)


@contextlib.contextmanager
def _client(base: Path) -> Iterator[Ask]:
    """Serves an exported model, and yields what asks it over gRPC."""
    server = ModelServer("model", base, port=0)
    try:
        server.start()
        with Client(f"localhost:{server.port}", model="model", timeout=60.0) as client:
            yield lambda name, batch: client.predict(name, {"text": batch})
    finally:
        server.stop(grace=0)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _batches(rows: Sequence[Any], size: int = BATCH) -> list[Sequence[Any]]:
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def _padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns rows with at least two tokens of padding each."""
    return pad(rows, max(map(len, rows)) + 2)
