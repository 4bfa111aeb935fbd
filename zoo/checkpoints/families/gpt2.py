"""GPT-2 (`gpt2`): pre-norm blocks, learned positions, tied embeddings, byte-level vocabulary."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.byte_level_tokenizers import byte_level
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.decoder_tokenizers import begins_texts
from zoo.checkpoints.families.base import (
    ACTIVATIONS,
    Exported,
    Imported,
    Trained,
    Weights,
    activation_name,
    register_family,
    register_writer,
)
from zoo.checkpoints.families.layouts import Columns, Mapped, Rows, normalization, read_mapped, write_mapped
from zoo.checkpoints.vocabulary import Arrangement, arrange, others_as_option, written_ends
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer
from zoo.vocabulary import END, START


@register_family(
    "gpt2", without_influence={"n_ctx": "n_positions replaces it", "reorder_and_upcast_attn": "scores are in float32"}
)
def gpt2(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of GPT-2 as one of our models; its tensors may lack the prefix `transformer.`.

    Raises:
        InputError: If it has options that our models do not support.
    """
    checkpoint.option("scale_attn_weights", True, only=True)
    checkpoint.option("scale_attn_by_inverse_layer_idx", False, only=False)
    checkpoint.option("add_cross_attention", False, only=False)
    checkpoint.option("tie_word_embeddings", True, only=True)
    activation = checkpoint.option("activation_function", "gelu_new")
    size, dim = checkpoint.option("vocab_size", 50257), checkpoint.option("n_embd", 768)
    end, *others = checkpoint.ends(size - 1)
    order = arrange(size, checkpoint.start(end), end)
    options = {
        "vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("n_layer", 12),
        "num_heads": checkpoint.option("n_head", 12),
        "model_dim": dim,
        "intermediate_dim": checkpoint.option("n_inner") or 4 * dim,
        "max_length": checkpoint.option("n_positions", 1024),
        "activation": ACTIVATIONS.get(activation, activation),
        "epsilon": checkpoint.option("layer_norm_epsilon", 1e-5),
        "other_ends": others_as_option(order, others),
        "start_symbol": begins_texts(checkpoint, order.original_ids[START]),
        "dropout": checkpoint.option("resid_pdrop", 0.1),
        "attention_dropout": checkpoint.option("attn_pdrop", 0.1),
    }
    return Imported(
        "gpt2", options, {"text": byte_level(checkpoint, order)}, lambda model: _weights(checkpoint, model, order)
    )


_SAME = {  # our options by their keys in config.json
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_embd": "model_dim",
    "n_inner": "intermediate_dim",
    "n_positions": "max_length",
    "layer_norm_epsilon": "epsilon",
    "resid_pdrop": "dropout",
    "embd_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
}


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="gpt2")
def to_gpt2(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of GPT-2.

    Raises:
        InputError: If GPT-2 does not support an option or the tokenizer.
    """
    model, options, tokenizer = trained.model, trained.options, trained.tokenizers["text"]
    trained.check("GPT-2", {*_SAME.values(), "vocab_size", "activation", "other_ends"})
    if not isinstance(tokenizer, ByteLevelBPETokenizer) or not tokenizer.is_basic:
        raise InputError(
            "GPT-2 supports only a byte-level tokenizer with its own rule for words, without added tokens and NFC. "
            f"Received: tokenizer={tokenizer.kind!r}."
        )
    order = Arrangement(tokenizer.original_ids).with_start([np.asarray(model.embedding.embeddings)])
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": order.size,
        "activation_function": activation_name("GPT-2", options["activation"]),
        "bos_token_id": order.original_ids[START],
        "eos_token_id": written_ends(order, options["other_ends"]),
        **{name: options[ours] for name, ours in _SAME.items()},
    }
    pieces, merges = tokenizer.vocabulary()
    end = order.original_ids[END]
    vocabulary = {"<|endoftext|>" if i == end else piece: i for piece, i in pieces.items()}
    return Exported(
        config,
        write_mapped(tensors(model, order, order.size)),
        {"vocab.json": vocabulary, "merges.txt": "\n".join(["#version: 0.2", *merges, ""])},
    )


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    prefix = "transformer." if checkpoint.has("transformer.wte.weight") else ""
    yield from read_mapped(checkpoint, tensors(model, order, checkpoint.option("vocab_size", 50257), prefix))
    for index in range(len(model.blocks)):  # causal masks
        checkpoint.ignore(f"{prefix}h.{index}.attn.bias", f"{prefix}h.{index}.attn.masked_bias")
    checkpoint.ignore("lm_head.weight")  # the embeddings once more


def tensors(model: Any, order: Arrangement, size: int, prefix: str = "transformer.") -> Iterator[Mapped]:
    """Yields the tensors of a GPT-2 and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
        prefix: The prefix of the names of the tensors.
    """
    yield Mapped(f"{prefix}wte.weight", (model.embedding.embeddings,), Rows(order, size))
    yield Mapped(f"{prefix}wpe.weight", (model.input_positions.positions.embeddings,))
    for index, block in enumerate(model.blocks):
        layer, attention, feed_forward = f"{prefix}h.{index}", block.attention, block.feed_forward
        for name, *parts in (  # matrices are [inputs, outputs] as ours
            ("attn.c_attn", attention.query_dense, attention.key_dense, attention.value_dense),
            ("attn.c_proj", attention.output_dense),
            ("mlp.c_fc", feed_forward.intermediate_dense),
            ("mlp.c_proj", feed_forward.output_dense),
        ):
            columns = Columns(len(parts))
            yield Mapped(f"{layer}.{name}.weight", tuple(part.kernel for part in parts), columns)
            yield Mapped(f"{layer}.{name}.bias", tuple(part.bias for part in parts), columns)
        for name, norm in zip(("ln_1", "ln_2"), block.norms, strict=True):
            yield from normalization(f"{layer}.{name}", norm)
    yield from normalization(f"{prefix}ln_f", model.final_norm)
