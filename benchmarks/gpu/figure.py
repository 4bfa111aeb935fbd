"""A figure to be taken: by which library, what it works on, and how long it may take."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JAX, TORCH = "jax", "torch"
OURS = "ours on JAX"


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        name: What is measured, such as `transformer_base`; those of one name are compared.
        contestant: Who is.
        library: The process that measures it: `JAX` or `TORCH`.
        kind: What the process makes of the work, one of its `KINDS`.
        work: Sizes and the like.
        seconds: The time that it takes, at most, once it is compiled: with less left it is left out.
        limit: The time after which it is given up, compilation included.
    """

    name: str
    contestant: str
    library: str
    kind: str
    work: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 15.0
    limit: float = 150.0

    @property
    def label(self) -> str:
        return f"{self.name}, {self.contestant}"

    def task(self) -> dict[str, Any]:
        """Returns what its process is told."""
        return {**self.work, "label": self.label, "kind": self.kind}
