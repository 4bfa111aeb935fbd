"""Who decodes what without training, and what ours should reach, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BATCH, LENGTH = 64, 16
REQUEST, TEST_SET = "request", "test_set"
OURS, CONVERTED = "zoo", "CTranslate2"


@dataclass(frozen=True)
class Peer:
    """One of those that make their own untrained model.

    Args:
        environment: One of `benchmarks.peers.REQUIREMENTS`; its module is `benchmarks/decoding/peers/<name>_search.py`.
        note: What it does differently, for a fair reading.
        cases: Where it takes part.
        options: What its task has besides the case's.
    """

    environment: str
    note: str
    cases: tuple[str, ...] = (REQUEST, TEST_SET)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """How many times faster the fastest of ours should be than the fastest of some peers.

    Args:
        what: Who they are, for the reader.
        bound: What to reach.
        names: How their names begin; everyone's if there is none.
        without: How the names of those begin who do not count.
    """

    what: str
    bound: float
    names: tuple[str, ...] = ("",)
    without: tuple[str, ...] = ()

    def counts(self, name: str) -> bool:
        """Tells whether a contestant is one of them.

        Args:
            name: Its name.
        """
        return name.startswith(self.names) and not name.startswith((OURS, *self.without))


@dataclass(frozen=True)
class Case:
    """Sentences, and how they are searched for.

    Args:
        name: Name for the command line.
        title: What is done.
        beams: Sizes of the beam.
        targets: What ours should reach.
        warm_up: Turns before those that count, behind a first one.
    """

    name: str
    title: str
    beams: tuple[int, ...]
    targets: tuple[Target, ...]
    warm_up: int


CASES = {
    case.name: case
    for case in (
        Case(
            REQUEST,
            f"{BATCH} sentences of {LENGTH} symbols, {LENGTH} steps, vocabulary 10,000",
            (1, 5),
            (
                Target("OpenNMT-tf and Hugging Face", 2.0, ("OpenNMT-tf", "Hugging Face")),
                Target("all peers but CTranslate2", 2.0, without=(CONVERTED,)),
                Target("CTranslate2", 1.0, (CONVERTED,)),
            ),
            warm_up=1,
        ),
        Case(
            TEST_SET,
            f"A test set, batches of {BATCH}, as many steps as the longest sentence of a batch has symbols",
            (5,),
            (
                Target("CTranslate2", 1.0, (CONVERTED,)),
                Target("all other peers", 3.0, without=(CONVERTED,)),
            ),
            warm_up=0,
        ),
    )
}

_GIVEN = "pre-norm; one matrix for all embeddings; keys and values are kept"
PEERS = {
    "OpenNMT-tf": Peer("opennmt_tf", f"{_GIVEN}; a bias of the output; in a graph, batch after batch"),
    "Hugging Face Marian": Peer(
        "hugging_face", f"{_GIVEN.replace('pre', 'post')}; eager, batch after batch; nothing ends"
    ),
    "KerasHub": Peer("kerashub", f"{_GIVEN}; in a graph; nothing ends", (REQUEST,)),
    "KerasHub, XLA": Peer("kerashub", f"{_GIVEN}; compiled for each width; nothing ends", options={"compile": True}),
    "TF Model Garden": Peer("model_garden", f"{_GIVEN}; in a graph, batch after batch; greedy is beam 1; nothing ends"),
    "Joey NMT": Peer("joey_nmt", "pre-norm; one matrix for all embeddings; all symbols so far are read at each step"),
}
_OURS = "pre-norm; one matrix for all embeddings; text to text"
NOTES = {
    OURS: f"{_OURS}; operations have all threads, or several batches are worked on at a time",
    f"{OURS}, in parts": f"{_OURS}; parts of 32 sentences with a thread each",
    f"{OURS}, XLA, in parts": f"{_OURS}; parts of 32 sentences, compiled",
    CONVERTED: "the weights of ours; batches with a thread each, or one with all of them",
    f"{CONVERTED}, in parts": "the weights of ours; parts of 32 sentences with a thread each",
    **{name: peer.note for name, peer in PEERS.items()},
}
