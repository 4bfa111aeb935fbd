"""GPT-NeoX and Pythia (`gpt_neox`): pre-norm blocks, both parts of which read the same, partly rotated heads."""

from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import ACTIVATIONS, Imported, Weights, dense, paired, register_family
from zoo.checkpoints.tokenizers import text_tokenizer
from zoo.checkpoints.vocabulary import Arrangement, arrange


@register_family("gpt_neox")
def gpt_neox(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of GPT-NeoX.

    Rotary positions pair neighbours here and features half of the rotated part apart there: the columns of queries and
    keys are put in another order. Where one symbol begins and ends texts, it is there twice.

    Raises:
        InputError: If it differs from GPT-NeoX in what we do not have.
    """
    checkpoint.option("attention_bias", True, only=True)
    checkpoint.option("rope_scaling", None, only=None)
    size, dim = checkpoint.option("vocab_size", 50432), checkpoint.option("hidden_size", 6144)
    rope = checkpoint.option("rope_parameters") or {}
    end, activation = checkpoint.option("eos_token_id", 2), checkpoint.option("hidden_act", "gelu")
    order = arrange(size, checkpoint.option("bos_token_id", end), end)
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
        "rotary_fraction": float(rope.get("partial_rotary_factor", checkpoint.option("rotary_pct", 0.25))),
        "max_wavelength": float(rope.get("rope_theta", checkpoint.option("rotary_emb_base", 10000.0))),
        "parallel_residual": checkpoint.option("use_parallel_residual", True),
        "tied_embeddings": checkpoint.option("tie_word_embeddings", False),
        "dropout": checkpoint.option("hidden_dropout", 0.0),
        "attention_dropout": checkpoint.option("attention_dropout", 0.0),
    }
    tokenizers = {"text": text_tokenizer(checkpoint, order)}
    return Imported("gpt2", options, tokenizers, lambda model: _weights(checkpoint, model, order))


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    dim, inner, heads = model.model_dim, model.intermediate_dim, model.num_heads
    head, size = model.options.head_dim, checkpoint.option("vocab_size", 50432)
    rotated = model.options.rotated_dim

    def part(values: np.ndarray, index: int) -> np.ndarray:
        """Returns what belongs to queries, keys or values, [..., D], of [3 · D, ...], which has it by heads."""
        of_heads = values.reshape(heads, 3, head, -1)[:, index]  # [N, H, ...]
        if index < 2:
            columns = paired(of_heads[:, :rotated].swapaxes(1, 2), rotated).swapaxes(1, 2)
            of_heads = np.concatenate([columns, of_heads[:, rotated:]], axis=1)
        return of_heads.reshape(dim, -1).T

    yield model.embedding.embeddings, order.rows(checkpoint.read("gpt_neox.embed_in.weight", (size, dim)))
    if model.tied_embeddings:
        checkpoint.ignore("embed_out.weight")
    else:
        yield model.embedding.reverse_embeddings, order.rows(checkpoint.read("embed_out.weight", (size, dim))).T
    for index, block in enumerate(model.blocks):
        layer, attention, feed_forward = f"gpt_neox.layers.{index}.", block.attention, block.feed_forward
        kernel = checkpoint.read(f"{layer}attention.query_key_value.weight", (3 * dim, dim))
        bias = checkpoint.read(f"{layer}attention.query_key_value.bias", (3 * dim,))
        for number, dense_layer in enumerate((attention.query_dense, attention.key_dense, attention.value_dense)):
            yield from dense(dense_layer, part(kernel, number), part(bias, number)[0])
        for dense_layer, name, inputs, outputs in (
            (attention.output_dense, "attention.dense", dim, dim),
            (feed_forward.intermediate_dense, "mlp.dense_h_to_4h", dim, inner),
            (feed_forward.output_dense, "mlp.dense_4h_to_h", inner, dim),
        ):
            weight = checkpoint.read(f"{layer}{name}.weight", (outputs, inputs)).T
            yield from dense(dense_layer, weight, checkpoint.read(f"{layer}{name}.bias", (outputs,)))
        for norm, name in zip(block.norms, ("input_layernorm", "post_attention_layernorm"), strict=True):
            yield norm.gamma, checkpoint.read(f"{layer}{name}.weight", (dim,))
            yield norm.beta, checkpoint.read(f"{layer}{name}.bias", (dim,))
        unlearned = ("bias", "masked_bias", "rotary_emb.inv_freq")
        checkpoint.ignore(*(f"{layer}attention.{name}" for name in unlearned))
    yield model.final_norm.gamma, checkpoint.read("gpt_neox.final_layer_norm.weight", (dim,))
    yield model.final_norm.beta, checkpoint.read("gpt_neox.final_layer_norm.bias", (dim,))
