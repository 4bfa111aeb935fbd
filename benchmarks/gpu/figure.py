"""A figure to measure: its library, its work and its time limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JAX, TORCH = "jax", "torch"
OURS = "ours on JAX"


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        name: The measurement, such as `transformer_base`; figures of one name are compared.
        contestant: The contestant.
        library: The process that measures it: `JAX` or `TORCH`.
        kind: The kind of work, one of the `KINDS` of the process.
        work: Sizes and the like.
        seconds: The longest time of the measurement without compilation; with less time left it is left out.
        limit: The time after which it is aborted, including compilation.
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
        """Returns the task of its process."""
        return {**self.work, "label": self.label, "kind": self.kind}
