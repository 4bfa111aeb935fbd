"""Every named model: its size, and all that is true of every model, for a small one with random weights."""

import pytest
from support.model_cases import ROWS, SMALL, case
from support.model_properties import check_all, check_call, check_graph
from support.models import names_of
from support.seq2seq_models import without_weights

import zoo
from zoo.errors import InputError
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.language_models.base import LanguageModel
from zoo.models.sentence_encoders.transformer import SentenceEncoder
from zoo.models.seq2seq.base import Seq2SeqModel

BASES = {
    "seq2seq": Seq2SeqModel,
    "classifier": ClassifierModel,
    "language_model": LanguageModel,
    "sentence_encoder": SentenceEncoder,
}
# With these sizes the numbers below were counted; 69 tokens are those of tinyshakespeare, and four special ones.
SIZES = {
    "seq2seq": {"source_vocab_size": 101, "target_vocab_size": 103},
    "classifier": {"vocab_size": 101, "num_classes": 7},
    "language_model": {"vocab_size": 69},
    "sentence_encoder": {"vocab_size": 101},
}
SHARED = {"source_vocab_size": 101, "target_vocab_size": 101}

# Numbers of weights with the spec's own options; of sequence-to-sequence models also with one shared vocabulary.
PINS = {
    # Embeddings 52,224; encoder 789,504; s₀ 65,792; decoder cell 787,968; alignment 197,120; readout 524,800; output
    # 256·V + V.
    "rnnsearch": (2_443_879, 2_442_853),
    # As rnnsearch with one embedding, the output's as well, without bias; the gate 256 + 512 + 256 + 1.
    "pointer_generator": (None, 2_392_065),
    # Embeddings 52,224; encoder 394,752; summary and s₀ 2 · 65,792; decoder 591,360; readout 393,728; output as above.
    "rnn_encdec": (1_590_119, 1_589_093),
    # Embeddings 52,224, the target's for the output as well; encoder 2 · 525,312; decoder cells 787,456 + 525,312;
    # W_c 131,072.
    "luong_dot": (2_546_688, 2_546_176),
    # One matrix of 256² more; two, and a vector; a matrix of 512 · 256.
    "luong_general": (2_612_224, 2_611_712),
    "luong_concat": (2_678_016, 2_677_504),
    "luong_location": (2_677_760, 2_677_248),
    # As general; local-p with a matrix and a vector for the place.
    "luong_local_m": (2_612_224, 2_611_712),
    "luong_local_p": (2_678_016, 2_677_504),
    # Encoder blocks 4 · 132,480; decoder blocks 4 · 198,784; embeddings 204 · 128, shared 101 · 128.
    "transformer_tiny": (1_351_168, 1_337_984),
    # Twelve additive scores of 32·32 + 32, 32·32 and 32.
    "transformer_tiny_additive": (1_376_512, 1_363_328),
    "transformer_tiny_unscaled": (1_351_168, 1_337_984),
    # Twelve temperatures.
    "transformer_tiny_cosine": (1_351_180, 1_337_996),
    # Two tables of 256 · 128.
    "transformer_tiny_learned_positions": (1_416_704, 1_403_520),
    # Two maps of 256·128 + 128.
    "transformer_tiny_concat_positions": (1_416_960, 1_403_776),
    "transformer_tiny_rotary": (1_351_168, 1_337_984),
    "transformer_tiny_alibi": (1_351_168, 1_337_984),
    # 2 · 33 vectors of 32 in eight layers.
    "transformer_tiny_relative": (1_368_064, 1_354_880),
    # In the decoder, eight times two projections of 128·64 + 64 less.
    "transformer_tiny_grouped_query": (1_219_072, 1_205_888),
    "transformer_tiny_local": (1_351_168, 1_337_984),
    "transformer_tiny_linear": (1_351_168, 1_337_984),
    "transformer_tiny_single_head": (1_351_168, 1_337_984),
    # Encoder blocks 4 · 130,368; decoder blocks 4 · 163,328; norms 2 · 128; embeddings as in the tiny one.
    "transformer_modern": (1_201_152, 1_187_968),
    # Encoder blocks 4 · 115,968, decoder blocks 4 · 182,272, on both sides 512 · (3 + 7 + 15 + 31) for the weights;
    # embeddings as in the tiny one.
    "dynamic_conv_nmt": (1_276_416, 1_263_232),
    # Encoder blocks 6 · 132,480, decoder blocks 2 · 165,632; embeddings as in the tiny one.
    "student_tiny": (1_152_256, 1_139_072),
    # Encoder blocks 6 · 2,102,784; decoder blocks 6 · 3,154,432; embeddings 204 · 512, shared 101 · 512.
    "transformer_small": (31_647_744, 31_595_008),
    # Encoder blocks 6 · 3,152,384; decoder blocks 6 · 4,204,032; embeddings as in the small one.
    "transformer_base": (44_242_944, 44_190_208),
    # Encoder blocks as in the base one, decoder blocks 2 · 3,678,208; embeddings as in the small one.
    "student_base": (26_375_168, 26_322_432),
    # Encoder blocks 6 · 12,596,224; decoder blocks 6 · 16,796,672; embeddings 204 · 1,024, shared 101 · 1,024.
    "transformer_big": (176_566_272, 176_460_800),
    # Embeddings 204 · 256, positions 2 · 256 · 256, seven convolutions of 768·512 + 512, seven maps of 256·256 + 256,
    # output 256·V + V.
    "convs2s_small": (3_426_407, 3_425_381),
    # Embeddings 101 · 64; four projections 4 · (64² + 64); 33 distances, in keys and values, 2 · 33 · 64; hidden layer
    # 64² + 64; output 64 · 7 + 7.
    "self_attention_classifier": 31_943,
    # Embeddings 101 · 128; blocks 2 · 132,480 as in transformer_tiny; output 128 · 7 + 7.
    "transformer_classifier": 278_791,
    # Embeddings 101 · 200; GRUs 2 · 3 · (200 · 100 + 100² + 2 · 100); output 200 · 7 + 7.
    "birnn_classifier": 202_807,
    # Embeddings 101 · 200; GRUs 2 · 3 · (200 · 50 + 50² + 2 · 50); pooling: query 100, maps 2 · 100² + 100, and 100;
    # output 100 · 7 + 7.
    "birnn_attention_classifier": 116_807,
    # As above, and over sentences: GRUs 2 · 3 · (100 · 50 + 50² + 2 · 50); pooling 2 · 100² + 300.
    "han_classifier": 182_707,
    # Embeddings 101 · 300; filters (3 + 4 + 5) · 300 · 100 + 300; output 300 · 7 + 7.
    "cnn_classifier": 392_707,
    # Blocks 4 · (4 · 128² + 2 · 128 · 512 + 4 · 128), last norm 2 · 128, embeddings 69 · 128, positions 257 · 128.
    # nanoGPT's 0.80 million are without positions and the shifts of the norms: 796,416 here.
    "causal_lm_tiny": 830_464,
    # Blocks 6 · (4 · 384² + 2 · 384 · 1536 + 4 · 384), last norm 2 · 384, embeddings 69 · 384, positions 257 · 384.
    "causal_lm_small": 10_752_000,
    # Blocks 12 · (4 · 768² + 2 · 768 · 3072 + 13 · 768), last norm 2 · 768, embeddings 69 · 768, positions 1024 · 768.
    "gpt2": 85_895_424,
    # Blocks 4 · (2 · 128² + 2 · 128 · 64 + 2 · 32 + 3 · 128 · 344 + 2 · 128), last norm 128, embeddings 69 · 128.
    "causal_lm_modern": 735_232,
    # Blocks 4 · (8 · 128² + 2 · 128 · 256 + 4 · 128), last norm 2 · 128, embeddings 69 · 128.
    "retnet_lm": 797_568,
    # Embeddings 69 · 256, LSTMs 2 · 4 · (2 · 256² + 256).
    "lstm_lm": 1_068_288,
    # Embeddings (101 + 512 + 2) · 384 and their norm 2 · 384; blocks 6 · (4 · (384² + 384) + 384 · 1536 · 2 + 1536
    # + 384 + 4 · 384).
    "sentence_bert": 10_883_712,
}

# Names whose first test asks for all properties, with the row of small options that goes most ways through the code:
# one of each kind. `test_all_properties` asks the others.
THOROUGH = {
    "rnn_encdec": 1,
    "transformer_small": 0,
    "convs2s_small": 1,
    "self_attention_classifier": 0,
    "transformer_classifier": 0,
    "birnn_classifier": 0,
    "cnn_classifier": 0,
    "causal_lm_tiny": 1,
    "lstm_lm": 0,
    "sentence_bert": 0,
}


def pinned(name, number=0):
    """Returns the number of weights that a name has, or `None` if it takes one vocabulary alone."""
    return PINS[name][number] if isinstance(PINS[name], tuple) else PINS[name]


@pytest.mark.parametrize("name", zoo.list_models())
def test_named_model(name, tmp_path):
    assert name in PINS and name in SMALL, f"{name} has no pin or no small options: add them."
    task = zoo.get_spec(name).task
    sizes, number = (SHARED, 1) if pinned(name) is None else (SIZES[task], 0)
    model = without_weights(name, **sizes)
    assert model.count_params() == pinned(name, number)
    assert model.name == name and isinstance(model, BASES[task])
    if name in THOROUGH:
        check_all(case(name, THOROUGH[name]), tmp_path)
    else:
        check_call(case(name))


def test_a_shared_vocabulary_takes_fewer_weights():
    for name in ("transformer_tiny", "luong_dot"):
        assert without_weights(name, **SHARED).count_params() == pinned(name, 1) < pinned(name)


@pytest.mark.nightly
def test_every_name_with_a_shared_vocabulary():
    counts = {name: without_weights(name, **SHARED).count_params() for name in names_of("seq2seq")}
    assert counts == {name: pinned(name, 1) for name in counts}


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "number"), [row for row in ROWS if THOROUGH.get(row[0]) != row[1]])
def test_all_properties(name, number, tmp_path):
    check_all(case(name, number), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "number"), ROWS)
def test_graph_of_unknown_sizes(name, number):
    check_graph(case(name, number))


def test_vocabularies_must_be_given():
    for name in zoo.list_models():
        sizes = SIZES[zoo.get_spec(name).task]
        for missing in sizes:
            with pytest.raises(InputError, match=f"{missing}.*None"):
                zoo.create_model(name, **sizes | {missing: None})
