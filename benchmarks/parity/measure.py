"""Compares an imported model with the software that its checkpoint is of."""

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
from export.graph.tokenizers import tokenizer_graph
from export.saved_model import export_saved_model
from export.serve import ModelServer
from zoo.checkpoints.vocabulary import arrange
from zoo.vocabulary import END, START, UNKNOWN, pad

BATCH = 7
"""Texts in a batch with padding."""
SERVED_BATCH = 32
TOKENIZER_BATCH = 512
BEAMS = 5
Predict = Callable[[str, list[str]], Mapping[str, Any]]  # from a signature and texts to its outputs


@dataclass(frozen=True)
class Count:
    """How many results are equal, and those that are not: the text, our result and the reference's."""

    asked: int
    different: Sequence[tuple[str, str, str]] = ()

    def __str__(self) -> str:
        """Returns the cell of a table."""
        equal = f"{self.asked - len(self.different):,}"
        return f"{equal} of {self.asked:,}" if not self.different else f"**{equal}** of {self.asked:,}"


@dataclass
class Result:
    """The comparison of a family.

    Attributes:
        family: Its name.
        where: Machine, commit and versions.
        logits: Largest differences relative to the largest logit, by how ours are computed.
        answers: Counts of equal texts, by search and where ours are computed.
        distinct: The number of different texts of the reference.
        tokenizer: The software of the reference's tokenizer; empty if that of another family is the same.
        ids: The number of ids that were compared.
        tokens: Counts of lines with equal ids, and of those that are decoded to the same text.
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


def relative(ours: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Returns the largest difference of arrays, relative to the largest expected value."""
    largest = max(float(np.abs(array).max()) for array in expected)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, expected, strict=True)) / largest


def compare(texts: Sequence[str], ours: Sequence[str], expected: Sequence[str]) -> Count:
    """Returns how many results are equal."""
    rows = zip(texts, ours, expected, strict=True)
    return Count(len(texts), [row for row in rows if row[1] != row[2]])


class Ids:
    """Our ids and those of a checkpoint.

    Args:
        tokenizer: One of our tokenizers.
        size: The number of tokens of the checkpoint.
        order: The checkpoint's id of each of our ids. Default: that of the tokenizer.
    """

    def __init__(self, tokenizer: Any, size: int, order: Sequence[int] = ()):
        known = order or _original_ids(tokenizer)
        # Unused rows of a table have no id in the tokenizer; they are in order, like all others.
        others = iter(sorted(set(range(size)) - set(known)))
        self.original = [
            next(others, -1) if ours > UNKNOWN and index < 0 else index for ours, index in enumerate(known)
        ]
        self.ours = {index: ours for ours, index in reversed(list(enumerate(self.original))) if index >= 0}
        self.order = [self.ours[index] for index in range(size)] if len(self.ours) >= size else []

    def theirs(self, row: Sequence[int]) -> list[int]:
        """Returns the checkpoint's ids of a row of ours."""
        return [self.original[i] for i in row]


def _original_ids(tokenizer: Any) -> Sequence[int]:
    if hasattr(tokenizer, "original_ids"):
        return list(tokenizer.original_ids)
    size = tokenizer.vocab_size  # characters, the last of which is the unknown one
    return arrange(size, 1, 2, 0, size - 1).original_ids


class Comparison:
    """An imported model and its reference.

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

    def source_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the checkpoint's ids of texts."""
        return [self.read.theirs(row) for row in self.run.ids(texts)]

    def logits(self, texts: Sequence[str]) -> dict[str, float]:
        """Returns the largest differences of logits: of single texts, of padded batches, and step by step."""
        rows = self.run.ids(texts)
        if self.task == "seq2seq":
            return self._translator_logits(rows)
        expected = self.reference.logits([self.read.theirs(row) for row in rows])
        if self.task == "sentence_encoder":
            return {
                way: relative(self.run.embed_text(texts, batch_size=size), expected)
                for way, size in (("alone", 1), ("padded", BATCH))
            }
        is_classifier = self.task == "classifier"
        alone = [self._own(self.run.model({"tokens": np.array([row], "int32")})[0]) for row in rows]
        padded: list[np.ndarray] = []
        for batch in _batches(rows):
            logits = self.run.model({"tokens": _padded(batch)})
            padded += [
                self._own(own if is_classifier else own[: len(row)]) for own, row in zip(logits, batch, strict=True)
            ]
        differences = {"alone": relative(alone, expected), "padded": relative(padded, expected)}
        if not is_classifier:
            stepped = [logits for batch in _batches(rows) for logits in self._stepped(batch)]
            differences["stepwise"] = relative(stepped, alone)
        return differences

    def _own(self, logits: Any) -> np.ndarray:
        """Returns logits in the order of the checkpoint."""
        values = np.asarray(logits)
        return values if self.task == "classifier" else values[..., self.written.order]

    def _stepped(self, batch: Sequence[Sequence[int]], memory: Any = None) -> list[np.ndarray]:
        """Returns the logits of rows, computed one token at a time."""
        tokens, steps = pad(batch), []
        model, inputs = self.run.model, () if memory is None else (memory,)
        state = model.initial_state(*inputs) if inputs else model.initial_state(len(batch))
        for last in tokens.T:
            logits, state = model.decode_step(last, state, *inputs)
            steps.append(self._own(logits))
        return [logits[: len(row)] for logits, row in zip(np.stack(steps, axis=1), batch, strict=True)]

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
            logits = model({"source": source, "target": _padded(batch_targets)})
            padded += [self._own(own[: len(row)]) for own, row in zip(logits, batch_targets, strict=True)]
            stepped += self._stepped(batch_targets, model.encode(source, training=False))
        if self.reference.log_probs:
            token_ids = [[*target[1:], END] for target in targets]
            alone, padded, stepped = (
                [self._log_probs(*pair) for pair in zip(logits, token_ids, strict=True)]
                for logits in (alone, padded, stepped)
            )
        return {
            "alone": relative(alone, expected),
            "padded": relative(padded, expected),
            "stepwise": relative(stepped, alone),
        }

    def _log_probs(self, logits: np.ndarray, token_ids: Sequence[int]) -> np.ndarray:
        columns = {ours: column for column, ours in enumerate(self.written.order)}
        logs = logits - np.logaddexp.reduce(logits.astype("float64"), axis=1, keepdims=True)
        return logs[np.arange(len(token_ids)), [columns[token] for token in token_ids]]

    def answers(self, texts: Sequence[str], folder: Path, served: bool) -> tuple[dict[str, Count], int]:
        """Returns how many texts are equal by search and place, and the number of different texts of the reference.

        Args:
            texts: The inputs.
            folder: An empty folder, for the exported model.
            served: Whether ours are requested over gRPC as well.
        """
        if self.task == "language_model":  # a prompt of the largest length has no continuation
            pairs = zip(texts, self.run.ids(texts), strict=True)
            texts = [text for text, row in pairs if len(row) < self.reference.max_length]
        expected, ours = self.all_answers(texts, folder, served)
        counts = {
            f"{way}, {place}": compare(texts, answers[way], expected[way])
            for way in expected
            for place, answers in ours.items()
        }
        return counts, len(set(expected["greedy"]))

    def all_answers(
        self, texts: Sequence[str], folder: Path, served: bool
    ) -> tuple[dict[str, list[str]], dict[str, dict[str, list[str]]]]:
        """Returns the texts of the reference by search, and ours by place and search; see `answers`."""
        ours = {"Python": self.in_python(texts)}
        base = folder / "exported"
        version = export_saved_model(self.workdir, base, **self._export_options())
        loaded = tf.saved_model.load(str(version))
        ours["SavedModel"] = self._of_signatures(
            lambda name, batch: loaded.signatures[name](text=tf.constant(batch)), texts
        )
        if served:
            with _client(base) as predict:
                ours["gRPC"] = self._of_signatures(predict, texts)
        return self.expected(texts), ours

    def expected(self, texts: Sequence[str]) -> dict[str, list[str]]:
        """Returns the texts, or labels, of the reference by search."""
        reference, rows = self.reference, self.source_ids(texts)
        if self.task == "classifier":
            return {"greedy": [self.run.classes[int(row.argmax())] for row in reference.logits(rows)]}
        decode = reference.vocabulary.decode
        if self.task == "language_model":
            first = 1 if self.run.model.start_symbol else 0
            whole, prompts = (decode([row[first:] for row in ids]) for ids in (reference.write(rows, 1), rows))
            return {"greedy": [text[len(prompt) :] for text, prompt in zip(whole, prompts, strict=True)]}
        return {way: decode(reference.write(rows, beams)) for way, beams in (("greedy", 1), ("beam", BEAMS))}

    def in_python(self, texts: Sequence[str]) -> dict[str, list[str]]:
        """Returns our texts, or labels, by search."""
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
        if self.task == "language_model":  # our length does not include the start
            return {"max_length": self.reference.max_length - self.run.model.start_symbol}
        return {"nbest": BEAMS} | {name: getattr(self.reference, name) for name in ("max_length", "rules", "force_end")}

    def _of_signatures(self, predict: Predict, texts: Sequence[str]) -> dict[str, list[str]]:
        """Returns the texts, or labels, of an exported model by search."""
        outputs = {"greedy": ("serving_default", "label" if self.task == "classifier" else "text")}
        if self.task == "seq2seq":
            outputs["beam"] = "nbest", "texts"
        by_search: dict[str, list[str]] = {}
        for way, (signature, output) in outputs.items():
            values = [np.asarray(predict(signature, list(batch))[output]) for batch in _batches(texts, SERVED_BATCH)]
            best = [value[:, 0] if value.ndim == 2 else value for value in values]
            by_search[way] = [_text(text) for text in np.concatenate(best).tolist()]
        return by_search

    def served_vectors(self, texts: Sequence[str], folder: Path) -> float:
        """Returns the largest difference of the vectors of an exported sentence encoder."""
        version = export_saved_model(self.workdir, folder / "exported")
        embed = tf.saved_model.load(str(version)).signatures["embed_text"]
        batches = [embed(text=tf.constant(batch))["embeddings"].numpy() for batch in _batches(texts, SERVED_BATCH)]
        return relative(np.concatenate(batches), self.reference.logits(self.source_ids(texts)))

    def tokens(self, lines: Sequence[str]) -> tuple[int, dict[str, Count]]:
        """Returns the number of ids, and how many lines have equal ids and are decoded to the same text."""
        vocabulary = self.reference.vocabulary
        reader, writer = self.run.tokenizers[0], self.run.tokenizers[-1]
        reading, writing = tokenizer_graph(reader), tokenizer_graph(writer)
        expected = vocabulary.encode(lines)
        rows = [[self.written.ours[i] for i in row] for row in expected]
        in_graph, decoded_in_graph = [], []
        for batch in _batches(lines, TOKENIZER_BATCH):
            in_graph += reading.encode([line.encode() for line in batch]).to_list()
        for batch in _batches(rows, TOKENIZER_BATCH):
            decoded_in_graph += [text.decode() for text in writing.decode(pad(batch)).numpy()]
        texts, ids = vocabulary.decode(expected), list(map(str, expected))
        counts = {
            f"ids, {place}": compare(lines, [str(self.read.theirs(row)) for row in ours], ids)
            for place, ours in (("host", reader.encode(lines)), ("graph", in_graph))
        }
        counts["text, host"] = compare(lines, writer.decode(rows), texts)
        counts["text, graph"] = compare(lines, decoded_in_graph, texts)
        return sum(map(len, expected)), counts


@contextlib.contextmanager
def _client(base: Path) -> Iterator[Predict]:
    """Serves an exported model, and yields a function that requests predictions over gRPC."""
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
