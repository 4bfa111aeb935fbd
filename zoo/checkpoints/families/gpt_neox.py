"""GPT-NeoX and Pythia (`gpt_neox`): parallel pre-norm blocks and heads of which a part is rotated."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.decoder_tokenizers import begins_texts, decoder_files, text_tokenizer
from zoo.checkpoints.families.base import (
    ACTIVATIONS,
    Exported,
    Imported,
    Trained,
    Weights,
    activation_name,
    paired,
    register_family,
    register_writer,
)
from zoo.checkpoints.families.layouts import (
    Mapped,
    linear,
    normalization,
    read_mapped,
    rows_of_tokens,
    tables,
    write_mapped,
)
from zoo.checkpoints.families.rotary import SCALING, check_scaling, rope_parameters, rotary
from zoo.checkpoints.vocabulary import Arrangement, arrange, others_as_option, written_ends
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer
from zoo.vocabulary import START


@register_family("gpt_neox")
def gpt_neox(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of GPT-NeoX as one of our models.

    Raises:
        InputError: If it has options that our models do not support.
    """
    checkpoint.option("attention_bias", True, only=True)
    size, dim = checkpoint.option("vocab_size", 50432), checkpoint.option("hidden_size", 6144)
    (end, *others), activation = checkpoint.ends(2), checkpoint.option("hidden_act", "gelu")
    order = arrange(size, checkpoint.start(end), end)
    wavelength, fraction = checkpoint.option("rotary_emb_base", 10000.0), checkpoint.option("rotary_pct", 0.25)
    for name, same in (("rope_theta", wavelength), ("partial_rotary_factor", fraction)):  # other names of these
        checkpoint.option(name, same, only=same)
    options = {
        "vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("num_hidden_layers", 44),
        "num_heads": checkpoint.option("num_attention_heads", 64),
        "model_dim": dim,
        "intermediate_dim": checkpoint.option("intermediate_size", 24576),
        "max_length": checkpoint.option("max_position_embeddings", 2048),
        "activation": ACTIVATIONS.get(activation, activation),
        "epsilon": checkpoint.option("layer_norm_eps", 1e-5),
        "positions": "rotary",
        **rotary(checkpoint, wavelength, fraction),
        "parallel_residual": checkpoint.option("use_parallel_residual", True),
        "tied_embeddings": checkpoint.tied(False, "gpt_neox.embed_in.weight", "embed_out.weight"),
        "other_ends": others_as_option(order, others),
        "start_symbol": begins_texts(checkpoint, order.original_ids[START]),
        "dropout": checkpoint.option("hidden_dropout", 0.0),
        "attention_dropout": checkpoint.option("attention_dropout", 0.0),
    }
    tokenizers = {"text": text_tokenizer(checkpoint, order)}
    return Imported("gpt2", options, tokenizers, lambda model: _weights(checkpoint, model, order))


_SAME = {  # our options by their keys in config.json
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "model_dim",
    "intermediate_size": "intermediate_dim",
    "max_position_embeddings": "max_length",
    "layer_norm_eps": "epsilon",
    "rotary_pct": "rotary_fraction",
    "rotary_emb_base": "max_wavelength",
    "use_parallel_residual": "parallel_residual",
    "tie_word_embeddings": "tied_embeddings",
    "hidden_dropout": "dropout",
    "attention_dropout": "attention_dropout",
}


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="gpt2")
def to_gpt_neox(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of GPT-NeoX.

    Raises:
        InputError: If GPT-NeoX does not support an option or the tokenizer.
    """
    model, options, tokenizer = trained.model, trained.options, trained.tokenizers["text"]
    free = {*_SAME.values(), *SCALING, "vocab_size", "activation", "other_ends", "start_symbol"}
    trained.check("GPT-NeoX", free, positions="rotary")
    check_scaling("GPT-NeoX", options)
    if not isinstance(tokenizer, ByteLevelBPETokenizer):
        raise InputError(f"The tokenizer of GPT-NeoX must be byte-level. Received: tokenizer={tokenizer.kind!r}.")
    files, order = decoder_files(tokenizer, rows_of_tokens(model), "GPT-NeoX", options["start_symbol"])
    config = {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "vocab_size": order.size,
        "hidden_act": activation_name("GPT-NeoX", options["activation"]),
        "attention_bias": True,
        "bos_token_id": order.original_ids[START],
        "eos_token_id": written_ends(order, options["other_ends"]),
        "rope_parameters": rope_parameters(model.options) | {"partial_rotary_factor": options["rotary_fraction"]},
        **{name: options[ours] for name, ours in _SAME.items()},
    }
    return Exported(config, write_mapped(tensors(model, order, order.size)), files)


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    yield from read_mapped(checkpoint, tensors(model, order, checkpoint.option("vocab_size", 50432)))
    if model.tied_embeddings:
        checkpoint.ignore("embed_out.weight")
    for index in range(len(model.blocks)):
        unlearned = ("bias", "masked_bias", "rotary_emb.inv_freq")
        checkpoint.ignore(*(f"gpt_neox.layers.{index}.attention.{name}" for name in unlearned))


def tensors(model: Any, order: Arrangement, size: int) -> Iterator[Mapped]:
    """Yields the tensors of a GPT-NeoX and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
    """
    outputs = _columns(model.num_heads, model.options.head_dim, model.options.rotated_dim)
    yield from tables(model, order, size, "gpt_neox.embed_in.weight", "embed_out.weight")
    for index, block in enumerate(model.blocks):
        layer, attention, feed_forward = f"gpt_neox.layers.{index}.", block.attention, block.feed_forward
        parts = (attention.query_dense, attention.key_dense, attention.value_dense)
        yield from linear(f"{layer}attention.query_key_value", *parts, outputs=outputs)
        yield from linear(f"{layer}attention.dense", attention.output_dense)
        yield from linear(f"{layer}mlp.dense_h_to_4h", feed_forward.intermediate_dense)
        yield from linear(f"{layer}mlp.dense_4h_to_h", feed_forward.output_dense)
        for norm, name in zip(block.norms, ("input_layernorm", "post_attention_layernorm"), strict=True):
            yield from normalization(f"{layer}{name}", norm)
    yield from normalization("gpt_neox.final_layer_norm", model.final_norm)


def _columns(num_heads: int, head_dim: int, rotated_dim: int) -> np.ndarray:
    """Returns the columns of our queries, keys and values in a matrix that has all three head by head, [3 · N · H]."""
    columns = np.arange(3 * num_heads * head_dim).reshape(num_heads, 3, head_dim)
    columns[:, :2] = paired(columns[:, :2], head_dim, rotated_dim)
    return columns.swapaxes(0, 1).ravel()
