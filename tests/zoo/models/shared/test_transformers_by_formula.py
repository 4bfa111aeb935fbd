"""Whole Transformers of all tasks against copies in NumPy that are written from the formulas, one query at a time."""

import numpy as np
import pytest
from support import models
from support.formulas import compare, kernel
from support.layers import references
from support.models import numpy
from support.seq2seq_models import batch, create, logits, steps
from support.tiers import nightly_unless

from zoo.vocabulary import END, PAD, START

SMALL = {"num_layers": 1, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3}
GROWN = {"positions": "concat", "concat_projection": False, "position_dim": 4, "num_heads": 2}


def dense(layer, inputs):
    return inputs @ kernel(layer) + (0.0 if layer.bias is None else numpy(layer.bias))


def norm(layer, inputs):
    centred = inputs - inputs.mean(axis=1, keepdims=True)
    return centred / np.sqrt(inputs.var(axis=1, keepdims=True) + 1e-5) * numpy(layer.gamma) + numpy(layer.beta)


def rms_norm(layer, rows):
    """Returns rows divided by the root of the mean of their squares, times the learned scale."""
    return rows / np.sqrt(np.mean(np.square(rows), axis=-1, keepdims=True) + 1e-6) * np.array(layer.scale)


def attention(layer, inputs, memory, causal=False):
    """Returns `concat(head₁ … head_N) W_o + b_o`, [T, D]."""
    sizes = {"query": layer.query_dim, "key": layer.key_dim, "value": layer.value_dim}
    sources = {"query": inputs, "key": memory, "value": memory}
    projected = {name: dense(getattr(layer, f"{name}_dense"), source) for name, source in sources.items()}
    heads = []
    for head in range(layer.num_heads):
        groups = {"query": head, "key": head * layer.memory_heads // layer.num_heads}
        groups["value"] = groups["key"]
        q, k, v = (projected[name][:, groups[name] * size :][:, :size] for name, size in sizes.items())
        if layer.qk_norm:
            q, k = rms_norm(layer.query_norm, q), rms_norm(layer.key_norm, k)
        score = layer.score if layer.share_score else layer.score.head_scores[head]
        scores = np.array([compare(score, row, k) for row in q])
        if layer.logit_softcap is not None:
            scores = layer.logit_softcap * np.tanh(scores / layer.logit_softcap)
        seen = visible(layer.visibility, scores, causal)
        pairs = zip(scores, seen, strict=True)
        heads.append([references.normalized(layer.normalization, row, allowed, head) @ v for row, allowed in pairs])
    joined = np.concatenate(heads, axis=1)
    return dense(layer.output_dense, joined) if layer.output_projection else joined


def visible(rule, scores, causal):
    """Returns which query may see which key, boolean [T, S] as the scores are."""
    seen = np.ones(scores.shape, bool)
    for t, s in np.ndindex(scores.shape):
        pair = {"batch": 0, "head": 0, "query": t, "key": s}
        seen[t, s] = (s <= t or not causal) and (rule is None or references.rule_sees(rule, pair))
    choice = None if rule is None else references.choice(rule)
    return seen if choice is None else references.chosen(choice, scores[None, None], seen[None, None], 0)[0, 0]


def feed_forward(layer, inputs):
    return dense(layer.output_dense, np.maximum(dense(layer.intermediate_dense, inputs), 0.0))


def run_block(block, hidden, parts):
    """Returns what is left of the activations after each part, a function, inside its residual connection."""
    for layer, part in zip(block.norms, parts, strict=True):
        if block.normalize_first:
            hidden = hidden + part(norm(layer, hidden))
        else:
            hidden = norm(layer, hidden + part(hidden))
    return hidden


def run_stack(blocks, last, hidden, causal=False):
    for block in blocks:
        parts = (
            lambda x, b=block: attention(b.attention, x, x, causal),
            lambda x, b=block: feed_forward(b.feed_forward, x),
        )
        hidden = run_block(block, hidden, parts)
    return hidden if last is None else norm(last, hidden)


def embed(model, table, layer, ids):
    """Returns the embeddings with their positions, [T, D] or [T, D + P]."""
    embedded, places = numpy(table.embeddings)[ids], np.arange(len(ids))
    embedded = embedded * np.sqrt(model.model_dim) if model.scale_embeddings else embedded
    kind, size = model.positions, model.position_dim or model.model_dim
    if kind in ("sinusoidal", "concat"):
        encoded = np.zeros((len(ids), size))
        for place, pair in np.ndindex(len(ids), size // 2):
            angle = place / 10000 ** (2 * pair / size)
            encoded[place, 2 * pair : 2 * pair + 2] = np.sin(angle), np.cos(angle)
    elif kind == "fairseq_sinusoidal":
        turns = (places[:, None] + 2) * 10000.0 ** (-np.arange(size // 2) / (size // 2 - 1))
        encoded = np.concatenate([np.sin(turns), np.cos(turns)], axis=1)
    elif kind in ("learned", "learned_concat"):
        encoded = numpy(layer.positions.embeddings)[np.minimum(places, model.max_length - 1)]
    elif kind == "integer":
        encoded = places[:, None]
    elif kind == "integer_normalized":
        encoded = np.minimum(places / (model.max_length - 1), 1)[:, None]
    else:
        return embedded
    if not kind.endswith("concat"):
        return embedded + encoded
    joined = np.concatenate([embedded, encoded], axis=1)
    return dense(layer.output_dense, joined) if model.concat_projection else joined


def give_logits(model, table, hidden):
    """Returns `W_oᵀ h + b_o`, [T, V]."""
    if model.options.hidden_dim != model.model_dim:
        return dense(model.output_layer, hidden)
    matrix = numpy(table.embeddings).T if table.tie_weights else numpy(table.reverse_embeddings)
    return hidden @ matrix + (numpy(model.output_layer.bias) if model.output_bias else 0.0)


def translate(model, source, target):
    """Returns the logits [T, V] of one sentence pair."""
    memory = embed(model, model.source_embedding, model.source_positions, source)
    memory = norm(model.source_embedding_norm, memory) if model.embedding_norm else memory
    memory = run_stack(model.encoder_blocks, model.encoder_norm, memory)
    hidden = embed(model, model.target_embedding, model.target_positions, target)
    hidden = norm(model.target_embedding_norm, hidden) if model.embedding_norm else hidden
    for block in model.decoder_blocks:
        parts = (
            lambda x, b=block: attention(b.self_attention, x, x, causal=True),
            lambda x, b=block: attention(b.cross_attention, x, memory),
            lambda x, b=block: feed_forward(b.feed_forward, x),
        )
        hidden = run_block(block, hidden, parts)
    hidden = hidden if model.decoder_norm is None else norm(model.decoder_norm, hidden)
    return give_logits(model, model.target_embedding, hidden)


# Each option is among these, with others beside it.
OPTIONS = {
    "post-norm": {"num_layers": 2},
    "pre-norm": {
        "normalize_first": True,
        "output_bias": True,
        "tied_embeddings": "none",
        "positions": "concat",
        "position_dim": 4,
        "score": "cosine",
    },
    "learned": {
        "positions": "learned",
        "max_length": 5,
        "tied_embeddings": "all",
        "scale_embeddings": False,
        "output_projection": False,
        "share_score": False,
        "score": "tanh_concat",
    },
    "grown": {
        **GROWN,
        "output_bias": True,
        "normalize_first": True,
        "query_dim": 5,
        "key_dim": 4,
        "value_dim": 7,
        "output_dim": 10,
        "score": "concat",
    },
    "learned-beside": {
        "positions": "learned_concat",
        "concat_projection": False,
        "score": "additive",
        "share_score": False,
    },
    "grouped": {
        "positions": "integer",
        "num_key_value_heads": 1,
        "score": "general",
        "share_score": False,
        "qk_norm": True,
        "visibility": "block_sparse",
        "block_size": 2,
        "summary_tokens": 1,
    },
    "integer": {"positions": "integer_normalized", "max_length": 5, "score": "location", "share_score": False},
    "fairseq": {"positions": "fairseq_sinusoidal", "embedding_norm": True, "normalize_first": True},
    "single-head": {
        "positions": "learned_concat",
        "scale_embeddings": False,
        "output_bias": True,
        "score": "dot",
        "num_heads": 1,
        "key_dim": 5,
        "value_dim": 6,
        "output_projection": False,
        "use_bias": False,
        "attention_normalization": "sink",
    },
    "rules": {
        "logit_softcap": 0.5,
        "attention_normalization": "entmax15",
        "visibility": "dilated",
        "window": 1,
        "dilation": 2,
        "decoder_visibility": "global",
        "global_tokens": 2,
    },
}


FAST = ("pre-norm", "post-norm", "learned", "grouped", "rules", "single-head")


@pytest.mark.parametrize("name", nightly_unless(FAST.__contains__, OPTIONS))
def test_transformer(name):
    model, (source, target) = create("transformer_tiny", {**SMALL, **OPTIONS[name]}), batch()
    result, stepwise = logits(model, source, target), steps(model, source, target)
    for row in range(len(source)):
        sentence, translation = (ids[row][ids[row] != PAD] for ids in (source, target))
        expected = translate(model, sentence, translation)
        for found in (result, stepwise):
            np.testing.assert_allclose(found[row, : len(translation)], expected, atol=3e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"output_bias": True, "positions": "integer_normalized", "scale_embeddings": False, "qk_norm": True},
        {**GROWN, "tied_embeddings": False, "output_bias": True, "normalize_first": False},
        {
            "output_projection": False,
            "share_score": False,
            "score": "general",
            "use_bias": True,
            "logit_softcap": 0.5,
            "visibility": "top_blocks",
            "block_size": 2,
            "num_blocks": 2,
        },
        {"visibility": "global", "window": 1, "num_key_value_heads": 1, "global_tokens": 2},
    ],
    ids=str,
)
def test_language_model(options):
    options = {**SMALL, "normalize_first": True, "activation": "relu", "max_length": 11, **options}
    model = models.create("causal_lm_tiny", vocab_size=13, **options)
    text = np.array([START, 5, 9, 4, 7, 5])
    hidden = embed(model, model.embedding, model.input_positions, text)
    expected = give_logits(model, model.embedding, run_stack(model.blocks, model.final_norm, hidden, causal=True))
    np.testing.assert_allclose(numpy(model({"tokens": text[None]}))[0], expected, atol=3e-5)
    first, state = model.prefill(text[None, :3], model.initial_state(1, 7))
    np.testing.assert_allclose(numpy(first)[0], expected[2], atol=3e-5)
    for place in (3, 4, 5):
        found, state = model.decode_step(text[place : place + 1], state)
        np.testing.assert_allclose(numpy(found)[0], expected[place], atol=3e-5)


TEXT = np.array([5, 9, 4, 7, END, PAD, PAD])


def classified(name, **options):
    """Returns a classifier and its logits of a text that is padded."""
    model = models.create(name, vocab_size=13, num_classes=3, **{"model_dim": 6, **options})
    return model, numpy(model({"tokens": TEXT[None]}))[0]


@pytest.mark.parametrize(
    "options",
    [
        {"scale_embeddings": False, "positions": "learned", "num_layers": 2, "visibility": "global", "window": 1},
        {**GROWN, "share_score": False, "score": "additive"},
        {"output_projection": False, "positions": "integer"},
    ],
    ids=str,
)
def test_transformer_classifier(options):
    model, result = classified("transformer_classifier", **{**SMALL, **options})
    hidden = embed(model, model.embedding, model.input_positions, TEXT[TEXT != PAD])
    encoded = run_stack(model.encoder_blocks, model.encoder_norm, hidden)
    np.testing.assert_allclose(result, dense(model.output_dense, encoded.mean(axis=0)), atol=3e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"scale_embeddings": False, "positions": "sinusoidal", "output_projection": False},
        {"positions": "concat", "concat_projection": False, "position_dim": 4, "key_dim": 5},
        {"positions": "integer_normalized", "score": "general", "query_dim": 3, "key_dim": 5, "value_dim": 7},
    ],
    ids=str,
)
def test_self_attention_classifier(options):
    model, result = classified("self_attention_classifier", **options)
    inputs = embed(model, model.embedding, model.input_positions, TEXT[TEXT != PAD])
    attended = inputs + attention(model.attention_layer, inputs, inputs)
    hidden = np.maximum(dense(model.hidden_dense, attended), 0.0)
    np.testing.assert_allclose(result, dense(model.output_dense, hidden.max(axis=0)), atol=3e-5)


def test_embeddings_are_not_tied_to_larger_activations_by_themselves():
    model = create("transformer_tiny", {**SMALL, **GROWN})
    assert model.tied_embeddings == "none" and model.output_layer.kernel.shape[0] == 10
