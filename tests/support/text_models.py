"""Small classifiers, language models and sentence encoders of every name, and what they read in tests."""

import numpy as np

from zoo.vocabulary import END, PAD, START, UNKNOWN, pad

TOKENS, CLASSES, LONGEST = 13, 3, 11
SIZES = {
    "classifier": {"vocab_size": TOKENS, "num_classes": CLASSES},
    "language_model": {"vocab_size": TOKENS, "max_length": LONGEST},
    "sentence_encoder": {"vocab_size": TOKENS},
}

# Small options for each name; each combination is a model of its own to the tests.
DROPPED = {"dropout": 0.25, "embedding_dropout": 0.25, "word_dropout": 0.25}
_ATTENTION = {"model_dim": 6, **DROPPED}
_BESIDE = {"positions": "concat", "concat_projection": False}
_ENCODER = {**_ATTENTION, "num_layers": 2, "intermediate_dim": 11, "num_heads": 3}
_RECURRENT = {"embedding_dim": 7, "units": 5, **DROPPED}
CLASSIFIERS = {
    "self_attention_classifier": [
        _ATTENTION,
        {**_ATTENTION, "pooling": "mean", "positions": "learned", "score": "additive", "max_length": 5},
        {
            **_ATTENTION,
            "positions": "concat",
            "concat_projection": False,
            "position_dim": 4,
            "output_projection": False,
        },
    ],
    "transformer_classifier": [
        {**_ENCODER, "pooling": "attention", "normalize_first": True, "positions": "rotary"},
        {**_ENCODER, "normalization": "rms_norm"},
        {**_ENCODER, **_BESIDE, "share_score": False, "score": "additive"},
        {**_ENCODER, "positions": "learned", "pooling": "first", "num_segments": 2, "embedding_norm": True},
    ],
    "birnn_classifier": [{**_RECURRENT, "cell_type": "lstm", "num_layers": 2}, {**_RECURRENT, "pooling": "mean"}],
    "birnn_attention_classifier": [_RECURRENT],
    "han_classifier": [
        {**_RECURRENT, "sentence_ends": "4,5,6", "max_sentences": 3},
        {**_RECURRENT, "cell_type": "lstm", "sentence_ends": "5"},
    ],
    "cnn_classifier": [
        {"embedding_dim": 7, "num_filters": 5, **DROPPED},
        {"embedding_dim": 7, "num_filters": 5, **DROPPED, "filter_widths": "1,2,8", "pooling": "attention"},
    ],
}

_DECODER = {"num_layers": 2, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3, "dropout": 0.25}
_STACK = {"embedding_dim": 5, "units": 5, "dropout": 0.25}
_MODERN = {
    "positions": "rotary",
    "normalization": "rms_norm",
    "activation": "silu",
    "gated": True,
    "model_dim": 8,
    "num_heads": 4,
    "num_key_value_heads": 2,
}
_MULTI = {"num_key_value_heads": 0}
_TAUGHT = {
    "positions": "learned_concat",
    "concat_projection": False,
    "position_dim": 3,
    "tied_embeddings": False,
    "output_bias": True,
    "output_projection": False,
    "value_dim": 3,
    "score": "general",
    "share_score": False,
}
_GEMMA = {
    "num_layers": 2,
    "visibility": "window",
    "window": 2,
    "full_attention_every": 2,
    "sandwich_norm": True,
    "logit_softcap": 0.7,
    "output_softcap": 0.3,
}
_OLMO = {
    "num_layers": 2,
    "normalize_first": False,
    "res_post_norm": True,
    "qk_norm_across_heads": True,
    "no_positions_every": 2,
    "visibility": "window",
    "window": 2,
    "window_wavelength": 100.0,
}
LANGUAGE_MODELS = {
    "causal_lm_tiny": [
        _DECODER,
        {**_DECODER, **_MODERN},
        {**_DECODER, "positions": "relative", "score": "additive", "use_bias": True, "tied_embeddings": False},
        {**_DECODER, **_TAUGHT},
    ],
    "causal_lm_small": [
        {**_DECODER, "normalize_first": False, "positions": "alibi", "self_attention": "local"},
        {**_DECODER, "self_attention": "average"},
        {**_DECODER, "self_attention": "ssru"},
    ],
    "gpt2": [
        _DECODER,
        {**_DECODER, "positions": "rotary", "rotary_fraction": 0.5, "key_dim": 6, "parallel_residual": True},
    ],
    "causal_lm_modern": [
        {**_DECODER, "num_key_value_heads": 1, "rope_scaling": "yarn", "rope_factor": 4.0},
        {**_DECODER, "num_key_value_heads": 1, **_GEMMA},
        {**_DECODER, "num_key_value_heads": 1, **_OLMO},
        {**_DECODER, **_MULTI, "self_attention": "latent", "latent_dim": 3, "qk_norm": False, "key_dim": 4},
        {**_DECODER, **_MULTI, "self_attention": "differential", "positions": "none", "output_gate": True},
        {**_DECODER, **_MULTI, "self_attention": "talking_heads", "positions": "alibi"},
    ],
    "retnet_lm": [
        {**_DECODER, "value_dim": 5},
        {**_DECODER, "self_attention": "gated_linear", "positions": "none"},
        {**_DECODER, "self_attention": "delta_rule", "positions": "none"},
    ],
    "lstm_lm": [{**_STACK, "units": 7, "num_layers": 3, "tied_embeddings": False}, _STACK],
}

_BERT = {"model_dim": 6, "num_layers": 2, "intermediate_dim": 11, "num_heads": 3, "max_length": 7}
SENTENCE_ENCODERS = {
    "sentence_bert": [{**_BERT, "projection_dim": 5}, {**_BERT, "pooling": "first", "normalize": False}]
}

SMALL = {**CLASSIFIERS, **LANGUAGE_MODELS, **SENTENCE_ENCODERS}
TEXTS = pad([[START, 5, 7, 9, END], [START, 8, END, 4, END], [START, END]])


def sentences(seed=0):
    """Returns texts [4, 7] of different lengths, each with its end token, padded."""
    lengths = (7, 4, 2, 1)
    tokens = np.random.default_rng(seed).integers(UNKNOWN + 1, TOKENS, (4, 7)).astype("int32")
    for row, length in enumerate(lengths):
        tokens[row, length - 1], tokens[row, length:] = END, PAD
    return tokens


def beginnings(seed=0):
    """Returns rows [3, 7] of different lengths behind their start tokens, padded."""
    tokens = np.random.default_rng(seed).integers(UNKNOWN + 1, TOKENS, (3, 7)).astype("int32")
    tokens[:, 0] = START
    for row, length in enumerate((7, 4, 1)):
        tokens[row, length:] = PAD
    return tokens
