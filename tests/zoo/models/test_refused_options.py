"""Options that no model can have: each is refused by an error that names the option and what it was given."""

import pytest
from support.every import every

import zoo
from zoo.errors import InputError

SIZES = {
    "seq2seq": {"source_vocab_size": 13, "target_vocab_size": 17},
    "classifier": {"vocab_size": 13, "num_classes": 3},
    "language_model": {"vocab_size": 13},
}
SMALL = {"num_layers": 1, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3}
WIDE = {"num_layers": 2, "model_dim": 16, "intermediate_dim": 5, "num_heads": 2}
GROWN = {"positions": "concat", "concat_projection": False, "position_dim": 4, "num_heads": 2}

# Options, and where the error speaks of something else than their names and values, or says more: what is in it.
REFUSED = {
    "rnnsearch": [
        {"units": 0},
        {"dropout": 1.0},
        {"cell_type": "rnn"},
        {"readout_state": "old"},
        {"readout_units": 5, "tied_embeddings": "target"},
        {"attend": "between", "cell_type": "lstm"},
        ({"score": "dott"}, "'dott'", "Did you mean dot"),
        ({"score": "luong"}, "'luong'", "dot", "general", "concat"),
        ({"score": "dot", "units": 8}, "'dot'", "units=8", "16", "encoder_units=4", "bidirectional=false"),
    ],
    "pointer_generator": [({}, "source_vocab_size=13", "target_vocab_size=17")],
    "rnn_encdec": [
        {"tied_embeddings": "source"},
        {"readout_units": -1},
        {"num_layers": 0},
        ({"readout_units": 0, "units": 5, "tied_embeddings": "target"}, "units=5", "tied_embeddings='target'"),
        ({"feed_summary": False, "start_state": "zeros"}, "start_state='zero'", "feed_summary=False"),
    ],
    "luong_dot": [
        {"start_state": "ones"},
        {"num_layers": 0},
        {"coverage": "sum"},
        {"transitions": 1},
        {"score_bias": True},
        ({"tied_embeddings": "all"}, "source_vocab_size=13", "target_vocab_size=17"),
        ({"score": "dott"}, "'dott'", "Did you mean dot"),
        ({"units": 5, "bidirectional": True}, "units=5", "bidirectional"),
    ],
    "luong_local_m": [{"window": 0}],
    "luong_local_p": [{"alignment": "local"}],
    "luong_location": [{"max_length": 0}],
    "convs2s_small": [
        {"encoder_layers": 0},
        {"width": 0},
        {"max_length": 2.0},
        {"dropout": 1},
        {"positions": "rotary"},
        {"positions": "concat", "embedding_dim": 5},
        ({"score": "dott"}, "'dott'", "Did you mean dot"),
    ],
    "transformer_tiny": [
        {"num_heads": 0},
        {"num_layers": 2.0},
        {"tied_embeddings": "yes"},
        {"positions": "sinus"},
        {"self_attention": "flash"},
        {"normalization": "batch"},
        {"activation": "rellu"},
        {"window": 0},
        {"num_features": 0},
        {"max_length": 0},
        {"max_distance": -2},
        {"attention_dropout": 1.0},
        {"feed_forward_dropout": -0.1},
        {"num_key_value_heads": -1},
        {"key_dim": -1},
        {"position_dim": 4, "positions": "sinusoidal"},
        {"visibility": "local"},
        {"block_size": 4},
        {"kernel_widths": "3,0"},
        {"kernel_widths": ""},
        {"decoder_self_attention": "rnn"},
        ({"score": "addditive"}, "'addditive'", "Did you mean additive"),
        ({"num_heads": 3}, "model_dim=128", "num_heads=3"),
        ({"tied_embeddings": "all"}, "source_vocab_size=13", "target_vocab_size=17"),
        ({**SMALL, "num_key_value_heads": 2}, "num_heads=3", "num_key_value_heads=2"),
        ({**SMALL, "max_distance": 16, "positions": "t5"}, "max_distance=16"),
        ({**SMALL, "num_heads": 6, "positions": "rotary"}, "'rotary'", "two", "model_dim=6", "num_heads=6"),
        ({**SMALL, "output_dim": 7}, "output_dim=7", "6"),
        ({**SMALL, "output_projection": False, "value_dim": 5}, "output_projection", "num_heads=3", "value_dim=5"),
        ({**SMALL, "query_dim": 3}, "'scaled_dot'", "query_dim=3", "key_dim=2"),
        ({**SMALL, "query_dim": 3, "score": "general", "positions": "relative"}, "query_dim=3", "'relative'"),
        ({**SMALL, **GROWN, "tied_embeddings": "all"}, "tied_embeddings=all", "concat_projection=false", "10", "6"),
        ({**SMALL, **GROWN, "num_heads": 3}, "model_dim", "position_dim=4"),
        ({**SMALL, "concat_projection": False}, "concat_projection", "learned_concat"),
        ({**SMALL, "positions": "concat", "position_dim": 5}, "position_dim", "5", "'concat'"),
        ({"visibility": "window", "dilation": 3}, "dilation=3", "visibility=dilated"),
        ({"visibility": "window", "self_attention": "linear"}, "linear", "visibility='window'"),
        ({"visibility": "block_sparse", "block_size": 4}, "4", "summary_tokens=8"),
        (
            {"visibility": "global", "decoder_self_attention": "average"},
            "average",
            "decoder_visibility='global'",
        ),
    ]
    + [  # what does not go together with what stands in place of self-attention
        ({**SMALL, "self_attention": kind, name: value}, f"`{name}`", f"self_attention='{kind}'")
        for kind, name, value in (
            ("linear", "score", "additive"),
            ("linear", "attention_dropout", 0.1),
            ("linear", "share_score", False),
            ("linear", "logit_softcap", 5.0),
            ("performer", "positions", "alibi"),
            ("block_local", "num_key_value_heads", 1),
            ("block_local", "score", "location"),
            ("lightweight_conv", "qk_norm", True),
            ("lightweight_conv", "positions", "rotary"),
            ("latent", "positions", "sinusoidal"),
        )
    ]
    + [
        ({**WIDE, "decoder_self_attention": "ssru", "score": "dot"}, "`score`", "decoder_self_attention='ssru'"),
        ({**WIDE, "decoder_self_attention": "retention", "output_gate": True}, "`output_gate`", "'retention'"),
        ({**WIDE, "self_attention": "dynamic_conv", "num_heads": 3, "key_dim": 4}, "num_heads", "16", "'dynamic_conv'"),
        (
            {**WIDE, "decoder_self_attention": "dynamic_conv", "num_heads": 3, "key_dim": 4},
            "num_heads",
            "decoder_self_attention='dynamic_conv'",
        ),
        (
            {**WIDE, "self_attention": "latent", "positions": "rotary", "key_dim": 2},
            "'latent'",
            "four",
            "key_dim=2",
        ),
    ],
    "transformer_modern": [{"self_attention": "retention"}],
    "transformer_classifier": [
        {"max_length": 0},
        {"relative_stddev": -1.0},
        ({"positions": "rotary", "self_attention": "retention"}, "self_attention", "'retention'"),
        ({"num_heads": 3}, "model_dim=128", "num_heads=3"),
    ],
    "self_attention_classifier": [
        {"dropout": 1},
        {"num_classes": 0},
        ({"score": "dots"}, "'dots'", "Did you mean dot"),
    ],
    "birnn_classifier": [{"cell_type": "rnn"}, {"units": 2.0}, {"embedding_dropout": -0.1}],
    "han_classifier": [
        {"pooling": "max"},
        ({"sentence_ends": "4,x"}, "sentence_ends='4,x'", "vocab_size=13"),
        ({"sentence_ends": "13"}, "sentence_ends='13'", "vocab_size=13"),
    ],
    "cnn_classifier": [
        {"num_filters": 0},
        {"pooling": "sum"},
        {"word_dropout": 1.0},
        {"filter_widths": "3,x"},
        {"filter_widths": "0"},
        ({"filter_widths": [3, 3]}, "filter_widths='3,3'"),
    ],
    "causal_lm_tiny": [
        {"max_length": 0},
        {"positions": "there"},
        ({"num_heads": 3}, "model_dim=128", "num_heads=3"),
        ({"positions": "concat", "concat_projection": False}, "tied_embeddings", "concat_projection=false"),
    ],
    "causal_lm_modern": [
        {"rope_scaling": "long"},
        {"rope_scaling": "yarn", "positions": "alibi"},
        {"output_softcap": -1.0},
        ({"rope_factor": 4}, "rope_factor=4.0", "rope_scaling='none'", "linear, ntk, yarn, llama3"),
        ({"rope_original_length": 64}, "rope_original_length=64", "rope_scaling='none'"),
        ({"rope_scaling": "linear", "rope_factor": 0.5}, "rope_factor=0.5"),
        (
            {"rope_scaling": "ntk", "rope_factor": 2, "model_dim": 4, "num_heads": 2, "num_key_value_heads": 0},
            "rope_scaling='ntk'",
            "four",
            "num_heads=2",
        ),
        ({**WIDE, "model_dim": 8, "num_key_value_heads": 1, "rotary_fraction": 0.25}, "'rotary'", "two", "num_heads=2"),
        ({"full_attention_every": 2}, "full_attention_every=2", "visibility='full'"),
        ({"sandwich_norm": True, "normalize_first": False}, "sandwich_norm=true", "normalize_first=false"),
        ({"res_post_norm": True}, "res_post_norm", "normalize_first=true"),
        ({"qk_norm_across_heads": True, "qk_norm": False}, "qk_norm_across_heads", "qk_norm=false"),
        ({"window_wavelength": 100.0}, "window_wavelength", "visibility='full'"),
        ({"window_wavelength": 0.5, "visibility": "window"}, "window_wavelength=0.5", "above 1"),
    ],
    "gpt2": [
        ({"rotary_fraction": 0.5}, "rotary_fraction", "rotary or xpos"),
        ({"normalize_first": False, "parallel_residual": True}, "parallel_residual=true", "normalize_first=false"),
    ],
    "retnet_lm": [
        ({name: value}, f"`{name}`", "self_attention='retention'")
        for name, value in (("score", "additive"), ("attention_dropout", 0.1), ("positions", "alibi"))
    ],
    "lstm_lm": [{"units": 0}, {"dropout": 1.0}, ({"units": 7}, "embedding_dim=256", "units=7", "tied_embeddings")],
}


@pytest.mark.parametrize("task", SIZES)
def test_what_cannot_be_is_refused_by_name_and_value(task):
    rows = [(name, row) for name in REFUSED if zoo.get_spec(name).task == task for row in REFUSED[name]]
    assert rows
    with every() as failures:
        for name, row in rows:
            options, *words = row if isinstance(row, tuple) else (row,)
            with failures.of(f"{name} {options}"), pytest.raises(InputError) as refused:
                zoo.create_model(name, **{**SIZES[task], **options})
            message = str(refused.value)
            with failures.of(f"{name} {options}"):
                missing = [word for word in words or [*options, *map(str, options.values())] if word not in message]
                assert not missing, message
