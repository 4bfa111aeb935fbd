"""Small sequence-to-sequence models of every name, and what tests ask of them."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
from keras import ops
from support import models
from support.models import numpy

import zoo
from zoo.vocabulary import PAD, START

SOURCE_TOKENS, TARGET_TOKENS = 13, 17
B, T, S = 3, 7, 5

# Small options for each name; each combination is a model of its own to these tests.
_RNN = {"embedding_dim": 7, "units": 5, "attention_units": 11, "readout_units": 3, "dropout": 0.25}
_ENCDEC = {"embedding_dim": 7, "units": 5, "readout_units": 3, "dropout": 0.25, "num_layers": 1}
_SUTSKEVER = {"num_layers": 2, "readout_units": 0, "cell_type": "lstm", "feed_summary": False, "reverse_source": True}
_LUONG = {"embedding_dim": 7, "units": 6, "num_layers": 2, "dropout": 0.25, "cell_type": "lstm"}
_TRANSFORMER = {"num_layers": 2, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3, "dropout": 0.25}
_VARIANT = {**_TRANSFORMER, "num_layers": 1}
_LIKE_LLAMA = {
    "normalize_first": True,
    "normalization": "rms_norm",
    "gated": True,
    "activation": "silu",
    "use_bias": False,
    "attention_dropout": 0.25,
    "feed_forward_dropout": 0.25,
    "positions": "t5",
}
SMALL = {
    "rnnsearch": [
        _RNN,
        {**_RNN, "cell_type": "lstm", "readout_units": 7, "tied_embeddings": "target"},
        {**_RNN, "start_state": "learned"},
        {**_RNN, "coverage": "fertility"},
        {**_RNN, "alignment": "monotonic"},
    ],
    "pointer_generator": [
        {**_RNN, "readout_units": 7, "tied_embeddings": "all"},
        {**_RNN, "readout_units": 7, "tied_embeddings": "all", "coverage": "sum", "cell_type": "lstm"},
    ],
    "rnn_encdec": [
        _ENCDEC,
        {**_ENCDEC, **_SUTSKEVER, "units": 7, "tied_embeddings": "target"},
        {**_ENCDEC, "num_layers": 2, "start_state": "learned"},
    ],
    "luong_dot": [_LUONG],
    "luong_general": [{**_LUONG, "cell_type": "gru", "bidirectional": True, "tied_embeddings": "all"}],
    "luong_concat": [
        {**_LUONG, "cell_type": "gru", "input_feeding": False, "start_state": "zero", "tied_embeddings": "none"},
        {**_LUONG, "num_layers": 1, "coverage": "sum"},
    ],
    "luong_location": [{**_LUONG, "num_layers": 1, "max_length": 11, "start_state": "learned"}],
    "luong_local_m": [{**_LUONG, "window": 1, "reverse_source": False}],
    "luong_local_p": [{**_LUONG, "window": 2, "start_state": "random"}],
    "transformer_tiny": [
        _TRANSFORMER,
        {**_TRANSFORMER, "normalize_first": True, "tied_embeddings": "none"},
        {**_TRANSFORMER, "tied_embeddings": "all"},
    ],
    "transformer_tiny_additive": [{**_VARIANT, "share_score": False, "query_dim": 5, "key_dim": 3, "value_dim": 7}],
    "transformer_tiny_unscaled": [{**_VARIANT, "output_projection": False, "scale_embeddings": False}],
    "transformer_tiny_cosine": [{**_VARIANT, "positions": "integer_normalized", "max_length": 5, "output_bias": True}],
    "transformer_tiny_learned_positions": [{**_VARIANT, "max_length": 5}],  # shorter than the targets
    "transformer_tiny_concat_positions": [{**_VARIANT, "concat_projection": False, "output_bias": True}],
    "transformer_tiny_rotary": [_VARIANT],
    "transformer_tiny_alibi": [_VARIANT],
    "transformer_tiny_relative": [{**_VARIANT, "max_distance": 2}],
    "transformer_tiny_grouped_query": [{**_VARIANT, "num_key_value_heads": 1}],
    "transformer_tiny_local": [{**_VARIANT, "window": 1}],
    "transformer_tiny_linear": [_VARIANT],
    "transformer_tiny_single_head": [{**_VARIANT, "num_heads": 1}],
    "transformer_modern": [{**_VARIANT, "num_key_value_heads": 1, "rope_scaling": "linear", "rope_factor": 2.0}],
    "dynamic_conv_nmt": [
        {**_VARIANT, "kernel_widths": "3"},
        # Norms come first, as otherwise what this draw of weights reads of the source is nearly flat.
        {
            **_TRANSFORMER,
            "self_attention": "lightweight_conv",
            "kernel_widths": "4,2",
            "normalize_first": True,
        },
    ],
    "student_tiny": [
        {**_VARIANT, "num_layers": 2, "decoder_layers": 1},
        {**_VARIANT, "decoder_layers": 1, "decoder_self_attention": "average"},
        {**_VARIANT, "decoder_layers": 1, "decoder_self_attention": "delta_rule"},
    ],
    "student_base": [{**_VARIANT, "decoder_layers": 1, "normalize_first": True}],
    # These names differ from transformer_tiny in sizes alone: here they stand for other options.
    "transformer_small": [{**_TRANSFORMER, **_LIKE_LLAMA}],
    "transformer_base": [{**_VARIANT, "self_attention": "performer", "num_features": 5, "positions": "learned_concat"}],
    "transformer_big": [{**_VARIANT, "self_attention": "block_local", "window": 2, "score": "general"}],
    "convs2s_small": [
        {"embedding_dim": 6, "units": 7, "encoder_layers": 2, "decoder_layers": 3, "width": 3, "dropout": 0.25},
        {
            "embedding_dim": 5,
            "units": 5,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "width": 2,
            "dropout": 0.25,
            "score": "additive",
            "max_length": 4,
        },
    ],
}


def create(name, options, dtype="float32", seed=0):
    """Returns a model whose weights are all random, biases included."""
    shared = options.get("tied_embeddings") == "all"
    sizes = {"source_vocab_size": TARGET_TOKENS if shared else SOURCE_TOKENS, "target_vocab_size": TARGET_TOKENS}
    return models.create(name, dtype, seed, **sizes, **options)


def without_weights(name, **options):
    """Returns a model that takes no memory: its variables have shapes, but wait for their values."""

    def make():
        with keras.StatelessScope(initialize_variables=False):
            return zoo.create_model(name, **options)

    # Keras keeps a list of what waits, for the next scope to fill. Each thread has its own.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(make).result()


def unbuilt(**options):
    """Returns a small Transformer whose layers can be looked at, without any weights."""
    spec = zoo.get_spec("transformer_tiny")
    sizes = {"source_vocab_size": SOURCE_TOKENS, "target_vocab_size": TARGET_TOKENS}
    return spec.load_class()(**{**spec.config, **sizes, **options})


def batch(seed=0):
    """Returns source [B, S] and target [B, T] of different lengths, padded."""
    chance = np.random.default_rng(seed)
    source, target = chance.integers(4, SOURCE_TOKENS, (B, S)), chance.integers(4, TARGET_TOKENS, (B, T))
    target[:, 0] = START
    for row, (s, t) in enumerate(((5, 7), (2, 4), (3, 1))):
        source[row, s:], target[row, t:] = PAD, PAD
    return source.astype("int32"), target.astype("int32")


def logits(model, source, target, **options):
    return numpy(model({"source": source, "target": target}, **options))


def steps(model, source, target):
    """Returns the logits [B, T, V] of decoding step by step, fed with the target."""
    memory = model.encode(ops.convert_to_tensor(source))
    state, results = model.initial_state(memory, T + 2), []
    for position in range(target.shape[1]):
        result, state = model.decode_step(ops.convert_to_tensor(target[:, position]), state, memory)
        results.append(numpy(result))
    return np.stack(results, axis=1)
