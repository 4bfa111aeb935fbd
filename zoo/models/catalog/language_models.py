"""Causal language models: their options and their names."""

from dataclasses import dataclass
from typing import Any

from zoo.errors import InputError
from zoo.models.shared.options import LanguageModelOptions
from zoo.models.shared.transformer_options import TransformerOptions
from zoo.options import flag, rate, size
from zoo.registry import ModelSpec, Paper, register_model

GPT = Paper(
    "Language Models are Unsupervised Multitask Learners",
    2019,
    "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)
TIED = "Whether one matrix serves for input and output."


@dataclass(frozen=True, kw_only=True)
class CausalLMOptions(TransformerOptions, LanguageModelOptions):
    """Options of `CausalLM`."""

    tied_embeddings: bool = flag(True, TIED)
    output_bias: bool = flag(False, "Whether logits have a bias: W_oᵀ h + b_o.")

    def check(self) -> None:
        super().check()
        if self.tied_embeddings and self.hidden_dim != self.model_dim:
            raise self.untied_only("tied_embeddings", "false")


@dataclass(frozen=True, kw_only=True)
class LSTMLanguageModelOptions(LanguageModelOptions):
    """Options of `LSTMLanguageModel`; the defaults are those of the paper's medium model."""

    embedding_dim: int = size(650, "Size of the embeddings; with `tied_embeddings` that of the units.")
    units: int = size(650, "Size of the state of each layer.")
    num_layers: int = size(2, "Number of layers.")
    dropout: float = rate(0.5, "Rate of dropout on the embeddings, between the layers and before the output.")
    tied_embeddings: bool = flag(False, TIED)

    def check(self) -> None:
        if self.tied_embeddings and self.embedding_dim != self.units:
            raise InputError(
                "`tied_embeddings` needs `embedding_dim` and `units` of one size. "
                f"Received: embedding_dim={self.embedding_dim}, units={self.units}."
            )


TINY = {"num_layers": 4, "model_dim": 128, "intermediate_dim": 512, "num_heads": 4, "dropout": 0.0}
SMALL = {"num_layers": 6, "model_dim": 384, "intermediate_dim": 1536, "num_heads": 6, "dropout": 0.2}


def _register_transformer(name: str, summary: str, sizes: dict[str, Any]) -> None:
    like_gpt = {"normalize_first": True, "activation": "gelu", "positions": "learned", "use_bias": False}
    config, model_class = {**like_gpt, **sizes}, "zoo.models.language_models.causal_transformer:CausalLM"
    register_model(ModelSpec(name, "language_model", GPT, summary, config, model_class, options=CausalLMOptions))


_register_transformer("causal_lm_tiny", "Decoder-only Transformer of 4 layers, 4 heads, d 128.", TINY)
_register_transformer("causal_lm_small", "Decoder-only Transformer of 6 layers, 6 heads, d 384.", SMALL)
register_model(
    ModelSpec(
        name="lstm_lm",
        task="language_model",
        paper=Paper("Recurrent Neural Network Regularization", 2014, "https://arxiv.org/abs/1409.2329"),
        summary="Two layers of LSTMs with dropout between them and none in time. The paper's medium model has "
        "embedding_dim 650, units 650, tied_embeddings false.",
        config={"embedding_dim": 256, "units": 256, "tied_embeddings": True},
        model_class="zoo.models.language_models.lstm:LSTMLanguageModel",
        options=LSTMLanguageModelOptions,
    )
)
