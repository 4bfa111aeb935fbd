"""Options of the embeddings of a Transformer."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.options import Options, flag, rate, size


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(Options):
    """Options of the embeddings: `x = f E y`, where f is √D, without `scale_embeddings` 1."""

    group: ClassVar[str] = "embeddings"
    short_names: ClassVar[dict[str, str]] = {"dim": "model_dim", "scale": "scale_embeddings"}

    model_dim: int = size(512, "Size of the embeddings and of the activations, D.")
    dropout: float = rate(0.1, "Rate of dropout on embeddings and on the result of each part of a block.")
    scale_embeddings: bool = flag(
        True, "Whether embeddings are multiplied by √D before positions, as in the paper; else by 1: E + P."
    )

    @property
    def embedding_factor(self) -> float:
        """What embeddings are multiplied by: √D or 1."""
        return float(self.model_dim**0.5) if self.scale_embeddings else 1.0
