"""Monotonic attention: its expectation, its decisions, and how it goes on from step to step."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import compiled, graph_and_xla, random_array, to_numpy
from support.layers.recurrent import expected_alignment
from support.layers.refusals import check_refusals

import zoo
from zoo import layers

B, T, S = 2, 3, 5
QUERY, VALUE = 2 * random_array((B, T, 7), 1), random_array((B, S, 7), 2)


def _layer(**options):
    layer = layers.MonotonicAttention(layers.GeneralScore(), **{"noise": 0, "initial_offset": 0.0, **options})
    layer.build(QUERY.shape, VALUE.shape)
    layer.score.key_dense.kernel.assign(3 * random_array((7, 7), 3))
    return layer


def _scores(layer):
    return np.einsum("btd,bsd->bts", QUERY, VALUE @ to_numpy(layer.score.key_dense.kernel)) + float(
        to_numpy(layer.offset)
    )


@pytest.mark.parametrize("training", [True, False])
def test_the_expectation_is_that_of_the_paper(training):
    layer = _layer(hard=training, initial_offset=0.25)
    allowed = np.array([[True] * 4 + [False], [False, True, False, True, True]])
    output, weights = layer(QUERY, VALUE, value_mask=allowed, return_attention_scores=True, training=training)
    expected, scores = np.zeros((B, T, S)), _scores(layer)
    for b in range(B):
        before = np.eye(S)[0]
        for t in range(T):
            before = expected_alignment(np.where(allowed[b], 1 / (1 + np.exp(-scores[b, t])), 0.0), before)
            expected[b, t] = before
    np.testing.assert_allclose(to_numpy(weights), expected, atol=2e-6)
    np.testing.assert_allclose(to_numpy(output), expected @ VALUE, atol=5e-6)


def test_decisions_are_those_of_the_process():
    layer = _layer()
    _, weights = layer(QUERY, VALUE, return_attention_scores=True)
    scores, expected = _scores(layer), np.zeros((B, T, S))
    for b in range(B):
        place = 0
        for t in range(T):
            while place < S and scores[b, t, place] <= 0:
                place += 1
            if place < S:
                expected[b, t, place] = 1.0
    assert 0 < expected.sum() < B * T and len(set(expected.argmax(-1).ravel())) > 2  # some stop, in several places
    np.testing.assert_array_equal(to_numpy(weights), expected)


def test_sure_decisions_are_the_expectation():
    layer, soft = _layer(), _layer(hard=False)
    for each in (layer, soft):
        each.score.key_dense.kernel.assign(3000 * random_array((7, 7), 3))
    hard, expected = (each(QUERY, VALUE, return_attention_scores=True)[1] for each in (layer, soft))
    np.testing.assert_allclose(to_numpy(hard), to_numpy(expected), atol=1e-5)


def test_steps_go_on_where_the_one_before_stopped():
    layer = _layer(hard=False)
    _, expected = layer(QUERY, VALUE, return_attention_scores=True)
    memory = layer.project_memory(VALUE)
    for t in range(T):
        _, weights = layer(QUERY[:, t : t + 1], memory=memory, return_attention_scores=True)
        memory = {**memory, "previous": weights[:, 0]}
        np.testing.assert_allclose(to_numpy(weights)[:, 0], to_numpy(expected)[:, t], atol=1e-6)


def test_masked_queries_are_passed_over():
    layer, mask = _layer(hard=False), np.array([[True, False, True]] * B)
    _, weights = layer(QUERY, VALUE, query_mask=mask, return_attention_scores=True)
    _, expected = layer(QUERY[:, ::2], VALUE, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[:, ::2], to_numpy(expected), atol=1e-6)
    assert not np.any(to_numpy(weights)[:, 1])


@pytest.mark.nightly
def test_noise_is_of_training_alone_and_another_at_each_step():
    keras.utils.set_random_seed(1)
    cell = layers.LuongAttentionCell(
        keras.layers.GRUCell(7), layers.MonotonicAttention("dot", noise=3.0, hard=False), memory_dim=7
    )
    rnn = layers.AttentionRNN(cell)
    inputs = np.zeros((B, 4, 3), "float32")
    call = {"memory": VALUE, "return_attention_scores": True}
    cell.build((B, 3))
    for weight in cell.cell.weights:
        weight.assign(np.zeros(weight.shape))  # the query is 0 at every step: scores are offset and noise
    plain, again, first, second = (
        to_numpy(rnn(inputs, **call, training=training)[1]) for training in (False, False, True, True)
    )
    np.testing.assert_array_equal(plain, again)
    assert np.abs(first - second).max() > 0.01 and np.abs(first - plain).max() > 0.01
    stopping = first[:, :, 0] / np.concatenate([np.ones((B, 1)), first[:, :-1, 0]], axis=1)  # σ(r + ε) of each step
    assert np.unique(np.round(stopping, 4)).size == stopping.size


@graph_and_xla
def test_steps_that_are_compiled(xla):
    layer = _layer(hard=False)
    expected = to_numpy(layer(QUERY, VALUE, training=True))
    found = compiled(lambda query, value: layer(query, value, training=True), xla)(
        ops.convert_to_tensor(QUERY), ops.convert_to_tensor(VALUE)
    )
    np.testing.assert_allclose(to_numpy(found), expected, atol=2e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rnnsearch", "luong_general"])
def test_models_step_as_they_read(name):
    sizes = {"embedding_dim": 5, "units": 6, "source_vocab_size": 11, "target_vocab_size": 13}
    model = zoo.create_model(name, alignment="monotonic", **sizes, **({"tied_embeddings": "none"}))
    kind = layers.NormalizedAdditiveScore if name == "rnnsearch" else layers.GeneralScore
    assert isinstance(model.cell.attention, layers.MonotonicAttention) and isinstance(model.cell.attention.score, kind)
    model.cell.attention.offset.assign(0.05)
    source = np.array([[3, 4, 5, 6, 2], [7, 8, 2, 0, 0]], "int32")
    target = np.random.default_rng(1).integers(3, 13, (B, 4)).astype("int32")
    memory = model.encode(source)
    logits, weights = model.decode(target, memory)
    state = model.initial_state(memory)
    for position in range(4):
        step, alignment, state = model.decode_step(target[:, position], state, memory, return_attention_scores=True)
        np.testing.assert_allclose(to_numpy(step), to_numpy(logits)[:, position], atol=2e-6)
        np.testing.assert_array_equal(to_numpy(alignment), to_numpy(weights)[:, :, :, position])
    places = to_numpy(weights)[:, 0, 0].argmax(-1)[to_numpy(weights)[:, 0, 0].any(-1)]
    assert places.size and set(np.unique(to_numpy(weights))) <= {0.0, 1.0}
    trained = to_numpy(model({"source": source, "target": target}, training=True))
    assert np.all(np.isfinite(trained))


def test_errors():
    sizes = {"source_vocab_size": 5, "target_vocab_size": 5}
    check_refusals(
        [
            (lambda: layers.MonotonicAttention(noise=-1), "`noise`", "noise=-1"),
            (lambda: layers.MonotonicAttention(normalization="sink"), "`normalization`", "SinkNormalization"),
            (lambda: _layer().create_cache(2), "MonotonicAttention", "`memory=layer.project_memory"),
            (
                lambda: zoo.create_model("rnnsearch", **sizes, alignment="monotonic", coverage="sum"),
                "`coverage`",
                "monotonic",
            ),
        ]
    )


def test_its_steps_can_be_counted():
    weights = zoo.cost(_layer(), query_length=T, value_length=S)["weights"]
    assert weights.shape == (1, T, S) and weights.multiplications > T * S
