"""GPT-2 (`gpt2`): pre-norm blocks, learned positions, tied embeddings, byte-level vocabulary."""

from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import ACTIVATIONS, Imported, Weights, dense, register_family
from zoo.checkpoints.tokenizers import byte_level_bpe
from zoo.checkpoints.vocabulary import Arrangement, arrange


@register_family("gpt2")
def gpt2(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of GPT-2, with or without the prefix `transformer.` of its tensors.

    Its texts begin with their first symbol; where one symbol begins and ends texts, it is there twice, and the second
    one is never written.

    Raises:
        InputError: If it differs from GPT-2 in what we do not have.
    """
    checkpoint.option("scale_attn_weights", True, only=True)
    checkpoint.option("scale_attn_by_inverse_layer_idx", False, only=False)
    checkpoint.option("add_cross_attention", False, only=False)
    checkpoint.option("tie_word_embeddings", True, only=True)
    activation = checkpoint.option("activation_function", "gelu_new")
    size, dim = checkpoint.option("vocab_size", 50257), checkpoint.option("n_embd", 768)
    end = checkpoint.option("eos_token_id", size - 1)
    order = arrange(size, checkpoint.option("bos_token_id", end), end)
    options = {
        "vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("n_layer", 12),
        "num_heads": checkpoint.option("n_head", 12),
        "model_dim": dim,
        "intermediate_dim": checkpoint.option("n_inner") or 4 * dim,
        "max_length": checkpoint.option("n_positions", 1024),
        "activation": ACTIVATIONS.get(activation, activation),
        "epsilon": checkpoint.option("layer_norm_epsilon", 1e-5),
        "dropout": checkpoint.option("resid_pdrop", 0.1),
        "attention_dropout": checkpoint.option("attn_pdrop", 0.1),
    }
    return Imported(
        "gpt2", options, {"text": byte_level_bpe(checkpoint, order)}, lambda model: _weights(checkpoint, model, order)
    )


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    prefix = "transformer." if checkpoint.has("transformer.wte.weight") else ""

    def read(name: str, *shape: int) -> np.ndarray:
        return checkpoint.read(prefix + name, shape)

    dim, inner, size = model.model_dim, model.intermediate_dim, checkpoint.option("vocab_size", 50257)
    yield model.embedding.embeddings, order.rows(read("wte.weight", size, dim))
    yield model.input_positions.positions.embeddings, read("wpe.weight", model.max_length, dim)
    for index, block in enumerate(model.blocks):
        layer, attention, feed_forward = f"h.{index}.", block.attention, block.feed_forward
        # Query, key and value side by side, as columns: inputs times matrix, as ours.
        kernels = np.split(read(f"{layer}attn.c_attn.weight", dim, 3 * dim), 3, axis=1)
        biases = np.split(read(f"{layer}attn.c_attn.bias", 3 * dim), 3)
        parts = (attention.query_dense, attention.key_dense, attention.value_dense)
        for part, kernel, bias in zip(parts, kernels, biases, strict=True):
            yield from dense(part, kernel, bias)
        for part, name, sizes in (
            (attention.output_dense, "attn.c_proj", (dim, dim)),
            (feed_forward.intermediate_dense, "mlp.c_fc", (dim, inner)),
            (feed_forward.output_dense, "mlp.c_proj", (inner, dim)),
        ):
            yield from dense(part, read(f"{layer}{name}.weight", *sizes), read(f"{layer}{name}.bias", sizes[1]))
        for norm, name in zip(block.norms, ("ln_1", "ln_2"), strict=True):
            yield norm.gamma, read(f"{layer}{name}.weight", dim)
            yield norm.beta, read(f"{layer}{name}.bias", dim)
        checkpoint.ignore(f"{prefix}{layer}attn.bias", f"{prefix}{layer}attn.masked_bias")  # causal masks
    yield model.final_norm.gamma, read("ln_f.weight", dim)
    yield model.final_norm.beta, read("ln_f.bias", dim)
    checkpoint.ignore("lm_head.weight")  # the embeddings once more
