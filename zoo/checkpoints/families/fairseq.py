"""What the translators with fairseq's options and names share: M2M-100, NLLB, BART, mBART and Marian."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import (
    ACTIVATIONS,
    SIDES,
    Exported,
    Trained,
    Weights,
    activation_name,
    attentions_of,
)
from zoo.checkpoints.families.layouts import (
    Columns,
    Later,
    Mapped,
    OneRow,
    Reordered,
    Rows,
    linear,
    normalization,
    read_mapped,
    write_mapped,
)
from zoo.checkpoints.multilingual_tokenizers import NAMES, SPECIAL, target_name
from zoo.checkpoints.tokenizers import original_ids_of
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.vocabulary import END, PAD, START

TABLE, BIAS = "model.shared.weight", "final_logits_bias"
FIRST_POSITION = 2
"""The number of unused rows at the beginning of a table of positions."""
COPIES = (
    "lm_head.weight",
    *(f"model.{side}.embed_tokens.weight" for side in SIDES.values()),
    *(f"model.{side}.embed_positions.weights" for side in SIDES.values()),  # sinusoids
)
WITHOUT_INFLUENCE = {
    "num_hidden_layers": "the number of layers of the encoder, which is read",
    "normalize_before": "an older name of what the family always does",
    "normalize_embedding": "an older name of what the family always does",
    "add_final_layer_norm": "an older name of what the family always does",
    "static_position_embeddings": "an older name of what the family always does",
    "extra_pos_embeddings": "the unused rows of the table of positions, always two",
    "add_bias_logits": "belongs to another head",
    "classif_dropout": "belongs to another head",
    "force_bos_token_to_be_generated": "an older name of forced_bos_token_id",
}
"""Keys of `config.json` on which no output of these families depends, and why."""


@dataclass(frozen=True)
class Defaults:
    """The defaults of a family for keys that `config.json` lacks."""

    vocab_size: int = 50265
    activation: str = "gelu"
    scale_embedding: bool = False
    attention_dropout: float = 0.0
    decoder_start: int | None = 2


def check_ids(checkpoint: Checkpoint) -> None:
    """Checks that padding and end have the ids of fairseq.

    Raises:
        InputError: If they have other ids, or embeddings are not tied.
    """
    checkpoint.option("pad_token_id", 1, only=1)
    checkpoint.option("is_encoder_decoder", True, only=True)
    if (end := checkpoint.end(2)) != 2:
        raise InputError(f"{checkpoint.generation_file}: eos_token_id must be 2 to be imported. Received: {end}.")
    if not checkpoint.tied(True, TABLE, "lm_head.weight"):
        raise InputError(f"{checkpoint.config_file}: tie_word_embeddings must be true to be imported. Received: false.")


def never_written(start: int | None, *codes: int) -> tuple[int, ...]:
    """Returns the ids that our decoding never writes: padding, and the start token unless it is the end or a code."""
    starts = () if start is None or start in (SPECIAL["eos"], *codes) else (start,)
    return (SPECIAL["pad"], *starts)


def options_of(checkpoint: Checkpoint, order: Arrangement, defaults: Defaults) -> dict[str, Any]:
    """Returns the options of a Transformer from `config.json`.

    Raises:
        InputError: If encoder and decoder differ in their sizes.
    """
    for name, default in (("ffn_dim", 4096), ("attention_heads", 16)):
        sizes = [checkpoint.option(f"{side}_{name}", default) for side in SIDES.values()]
        if sizes[0] != sizes[1]:
            raise InputError(
                f"{checkpoint.config_file}: encoder_{name} and decoder_{name} must be the same to be imported. "
                f"Received: {sizes[0]} and {sizes[1]}."
            )
    activation = checkpoint.option("activation_function", defaults.activation)
    return {
        "source_vocab_size": len(order.original_ids),
        "target_vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("encoder_layers", 12),
        "decoder_layers": checkpoint.option("decoder_layers", 12),
        "num_heads": checkpoint.option("encoder_attention_heads", 16),
        "model_dim": checkpoint.option("d_model", 1024),
        "intermediate_dim": checkpoint.option("encoder_ffn_dim", 4096),
        "activation": ACTIVATIONS.get(activation, activation),
        "scale_embeddings": checkpoint.option("scale_embedding", defaults.scale_embedding),
        "tied_embeddings": "all",
        "dropout": checkpoint.option("dropout", 0.1),
        "attention_dropout": checkpoint.option("attention_dropout", defaults.attention_dropout),
        "feed_forward_dropout": checkpoint.option("activation_dropout", 0.0),
    }


SAME = {
    "encoder_layers": "num_layers",
    "encoder_attention_heads": "num_heads",
    "decoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "intermediate_dim",
    "decoder_ffn_dim": "intermediate_dim",
    "d_model": "model_dim",
    "max_position_embeddings": "max_length",
    "scale_embedding": "scale_embeddings",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "feed_forward_dropout",
}
"""Our options by their keys in `config.json`."""
FREE = {*SAME.values(), "source_vocab_size", "target_vocab_size", "decoder_layers", "activation"}
"""Options that may have any value in all these families."""


def exported(
    family: str, trained: Trained, config: Mapping[str, Any], files: Mapping[str, Any], bias: bool
) -> Exported:
    """Returns a model as a checkpoint.

    Args:
        family: The name of the family, for errors.
        trained: The model.
        config: The keys of `config.json` that are particular to the family.
        files: The files of the tokenizer.
        bias: Whether logits have a bias in the family, which may be zero.

    Raises:
        InputError: If the start token was a language code, and training has changed its row.
    """
    model, target = trained.model, trained.tokenizers["target"]
    original = Arrangement(original_ids_of(target))
    biases = [] if model.output_layer is None else [np.asarray(model.output_layer.bias)]
    order = original.with_start([np.asarray(model.target_embedding.embeddings), *biases])
    if order != original and target_name(target) not in ("", NAMES[SPECIAL["eos"]]):
        raise InputError(f"{family} starts translations with a language code, which training has changed.")
    pad, start, end = (order.original_ids[i] for i in (PAD, START, END))
    forced = [order.original_ids[i] for i in target.forced]
    shared = {"is_encoder_decoder": True, "bos_token_id": 0, "tie_word_embeddings": True}
    written = {**config_of(family, trained, order), **shared, **config}
    generation = {
        "bad_words_ids": [[pad], *([[start]] if order != original else [])],
        "max_length": trained.options["max_length"],
        "pad_token_id": pad,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        "forced_bos_token_id": forced[0] if forced else None,
        "forced_eos_token_id": None,
    }
    zeros = {BIAS: lambda: np.zeros((1, order.size), "float32")} if bias and not biases else {}
    mapped = write_mapped(tensors(model, order, order.size))
    return Exported(written, {**mapped, **zeros}, {**files, "generation_config.json": generation})


def config_of(family: str, trained: Trained, order: Arrangement) -> dict[str, Any]:
    """Returns the part of `config.json` with the sizes of a model and its special tokens.

    Raises:
        InputError: If the family does not support the activation.
    """
    options = trained.options
    pad, start, end = (order.original_ids[i] for i in (PAD, START, END))
    return {
        "vocab_size": order.size,
        "activation_function": activation_name(family, options["activation"]),
        "decoder_layers": options["decoder_layers"] or options["num_layers"],
        "pad_token_id": pad,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        **{name: options[ours] for name, ours in SAME.items()},
    }


def bias_of(checkpoint: Checkpoint, size: int) -> bool:
    """Returns whether the logits have a bias that is not zero; a zero bias is marked as read."""
    if not checkpoint.has(BIAS):
        return False
    return bool(np.any(checkpoint.read(BIAS, (1, size))))


def reader(checkpoint: Checkpoint, order: Arrangement, size: int) -> Callable[[Any], Weights]:
    """Returns the function of a model that yields its weights from a checkpoint."""

    def weights(model: Any) -> Weights:
        table = next((name for name in (TABLE, *COPIES[1:3]) if checkpoint.has(name)), TABLE)
        yield from read_mapped(checkpoint, tensors(model, order, size, table))
        checkpoint.ignore(TABLE, BIAS, *COPIES)

    return weights


def tensors(model: Any, order: Arrangement, size: int, table: str = TABLE) -> Iterator[Mapped]:
    """Yields the tensors of such a checkpoint and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
        table: The name of the embeddings.
    """
    yield Mapped(table, (model.target_embedding.embeddings,), Rows(order, size))
    if model.output_layer is not None:
        yield Mapped(BIAS, (model.output_layer.bias,), OneRow(Rows(order, size)))
    sides: Mapping[str, Any] = {
        "encoder": (model.encoder_blocks, model.source_positions, model.source_embedding_norm, model.encoder_norm),
        "decoder": (model.decoder_blocks, model.target_positions, model.target_embedding_norm, model.decoder_norm),
    }
    for side, (blocks, positions, embedding_norm, last) in sides.items():
        if model.positions == "learned":
            rows = (positions.positions.embeddings,)
            yield Mapped(f"model.{side}.embed_positions.weight", rows, Later(FIRST_POSITION))
        for name, norm in (("layernorm_embedding", embedding_norm), ("layer_norm", last)):
            if norm is not None:
                yield from normalization(f"model.{side}.{name}", norm)
        yield from tensors_of_blocks(side, blocks)


def tensors_of_blocks(side: str, blocks: Iterable[Any], places: np.ndarray | None = None) -> Iterator[Mapped]:
    """Yields the tensors of the blocks of a side and the variables that they are composed of.

    Args:
        side: `"encoder"` or `"decoder"`.
        blocks: The blocks of the model.
        places: The index in the checkpoint of each feature of the activations. Default: the same.
    """
    vector = None if places is None else Reordered(places, 0, Columns())
    for index, block in enumerate(blocks):
        layer = f"model.{side}.layers.{index}"
        attentions = dict(zip(("self_attn", "encoder_attn"), attentions_of(block), strict=False))
        for name, attention in attentions.items():
            yield from linear(f"{layer}.{name}.q_proj", attention.query_dense, inputs=places)
            yield from linear(f"{layer}.{name}.k_proj", attention.key_dense, inputs=places)
            yield from linear(f"{layer}.{name}.v_proj", attention.value_dense, inputs=places)
            yield from linear(f"{layer}.{name}.out_proj", attention.output_dense, outputs=places)
        yield from linear(f"{layer}.fc1", block.feed_forward.intermediate_dense, inputs=places)
        yield from linear(f"{layer}.fc2", block.feed_forward.output_dense, outputs=places)
        names = [*(f"{name}_layer_norm" for name in attentions), "final_layer_norm"]
        for norm, name in zip(block.norms, names, strict=True):
            yield from normalization(f"{layer}.{name}", norm, vector)
