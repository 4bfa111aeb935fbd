"""Attention whose cost does not grow with T · S: formulas, agreement with the dense layers, caches, memory."""

import math

import keras
import numpy as np
import pytest
from contract import compiled, gradients, graph_and_xla, random_array, random_mask, randomize, to_numpy
from keras import ops

from zoo import layers
from zoo.layers.attention import cache as caches
from zoo.layers.attention import linear as linear_attention
from zoo.layers.attention import sliding_window as sliding_window_attention
from zoo.layers.attention.performer import orthogonal_features
from zoo.layers.core import execution

B, N, D = 2, 3, 11
H, V = 5, 7


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Makes several blocks out of a few positions."""
    monkeypatch.setattr(sliding_window_attention, "MIN_ROWS", 4)
    monkeypatch.setattr(linear_attention, "BLOCK_SIZE", 4)


def _window(**options):
    return layers.SlidingWindowAttention(N, H, window=3, value_dim=V, **options)


def _block(**options):
    return layers.BlockLocalAttention(N, H, block_size=5, value_dim=V, **options)


def _linear(**options):
    return layers.LinearAttention(N, H, value_dim=V, **options)


def _performer(**options):
    return layers.PerformerAttention(N, H, num_features=13, value_dim=V, seed=5, **options)


blocked = pytest.mark.parametrize("make", [_window, _block])
linear = pytest.mark.parametrize("make", [_linear, _performer])
each = pytest.mark.parametrize("make", [_window, _block, _linear, _performer])
# Queries and keys, and where the queries begin.
lengths = pytest.mark.parametrize(
    "lengths",
    [
        *((19, 6, None), (9, 19, 4)),
        *(pytest.param(each, marks=pytest.mark.slow) for each in ((19, 19, None), (6, 19, None), (1, 19, None))),
    ],
    ids=str,
)


def _built(layer, dim=D):
    layer.build((B, 19, dim), (B, 19, dim))
    return randomize(layer)


def _near(layer, queries, keys, start=None):
    """Returns which query sees which key by the definition of the layer, [T, S]."""
    start = keys - queries if start is None else start
    allowed = np.ones((queries, keys), bool)
    for t, s in np.ndindex(queries, keys):
        if isinstance(layer, layers.SlidingWindowAttention):
            allowed[t, s] = abs(start + t - s) <= layer.window
        elif isinstance(layer, layers.BlockLocalAttention):
            allowed[t, s] = math.floor((start + t) / layer.block_size) == s // layer.block_size
    return allowed


def _causal(queries, keys, start=None):
    return np.tri(queries, keys, keys - queries if start is None else start, dtype=bool)


# The formulas, in loops.


def _features(layer, vector, is_query):
    if isinstance(layer, layers.PerformerAttention):
        vector = vector / len(vector) ** 0.25
        omegas = to_numpy(layer.random_features).T
        return np.array([math.exp(omega @ vector - vector @ vector / 2) for omega in omegas]) / math.sqrt(len(omegas))
    return np.array([x + 1 if x > 0 else math.exp(x) for x in vector])


def _similarity(layer, query, key):
    """Returns what the weight of a key is proportional to."""
    if isinstance(layer, layers.LinearAttention):
        return _features(layer, query, True) @ _features(layer, key, False)
    return math.exp(query @ key / math.sqrt(len(query)))


def _dense(layer, inputs, size, head):
    columns = slice(head * size, (head + 1) * size)
    return inputs @ to_numpy(layer.kernel)[:, columns] + to_numpy(layer.bias)[columns]


def _reference(layer, query, value, allowed):
    """Returns output [T, D] and weights [N, T, S] of one sequence."""
    output, weights = np.zeros((len(query), D)), np.zeros((N, *allowed.shape))
    kernel = to_numpy(layer.output_dense.kernel)
    for head in range(N):
        queries, keys = _dense(layer.query_dense, query, H, head), _dense(layer.key_dense, value, H, head)
        values = _dense(layer.value_dense, value, V, head)
        for t in range(len(query)):
            for s in np.flatnonzero(allowed[t]):
                weights[head, t, s] = _similarity(layer, queries[t], keys[s])
            weights[head, t] /= weights[head, t].sum() or 1.0
        output += weights[head] @ values @ kernel[head * V : (head + 1) * V]
    output += to_numpy(layer.output_dense.bias)
    output[~allowed.any(axis=1)] = 0.0
    return output, weights


@each
@lengths
@pytest.mark.parametrize("causal", [False, True])
def test_formula(make, lengths, causal):
    queries, keys, start = lengths
    layer, query, value = _built(make()), random_array((B, queries, D), 1), random_array((B, keys, D), 2)
    query_mask, value_mask = random_mask((B, queries), 1), random_mask((B, keys), 2)
    options = {"query_mask": query_mask, "value_mask": value_mask, "use_causal_mask": causal, "start_index": start}
    output, weights = map(to_numpy, layer(query, value, return_attention_scores=True, **options))
    np.testing.assert_array_equal(to_numpy(layer(query, value, **options)), output)
    near = _near(layer, *lengths) & (_causal(*lengths) if causal else True)
    for b in range(B):
        allowed = near & query_mask[b][:, None] & value_mask[b]
        expected, expected_weights = _reference(layer, query[b], value[b], allowed)
        np.testing.assert_allclose(weights[b], expected_weights, atol=5e-6)
        np.testing.assert_allclose(output[b], expected, atol=1e-5)
        np.testing.assert_array_equal(weights[b] == 0, np.broadcast_to(~allowed, (N, *allowed.shape)))


def _identity(layer):
    """Makes one head of size 1 that sees its only feature as it is."""
    layer.build((1, 4, 1), (1, 4, 1))
    layer.set_weights([np.reshape(value, (1, 1) if i % 2 == 0 else 1) for i, value in enumerate([1.0, 0.0] * 4)])
    return layer


@pytest.mark.parametrize(
    ("layer", "causal", "expected"),
    [
        # Queries and keys are 0, so that the weights of all that a query sees are equal; the values are 3, 6, 12, 24.
        (lambda: layers.SlidingWindowAttention(1, 1, 1), False, [4.5, 7, 14, 18]),
        (lambda: layers.SlidingWindowAttention(1, 1, 1), True, [3, 4.5, 9, 18]),
        (lambda: layers.SlidingWindowAttention(1, 1, 9), False, [11.25] * 4),
        (lambda: layers.BlockLocalAttention(1, 1, 2), False, [4.5, 4.5, 18, 18]),
        (lambda: layers.BlockLocalAttention(1, 1, 3), True, [3, 4.5, 7, 24]),
        (lambda: layers.LinearAttention(1, 1), True, [3, 4.5, 7, 11.25]),
    ],
)
def test_equal_weights_by_hand(layer, causal, expected):
    layer, zeros = _identity(layer()), np.zeros((1, 4, 1), "float32")
    values = np.array([[[3.0], [6.0], [12.0], [24.0]]], "float32")
    output = to_numpy(layer(zeros, values, zeros, use_causal_mask=causal))
    np.testing.assert_allclose(output[0, :, 0], expected, rtol=1e-6)


def test_linear_weights_by_hand():
    # φ(1) = 2, φ(0) = 1, φ(−ln 2) = 1/2: the weights of the keys are as 4 : 2 : 1 for any query.
    layer, query = _identity(layers.LinearAttention(1, 1)), np.array([[[5.0], [-5.0]]], "float32")
    key = np.array([[[3.0], [1.0], [0.0]]], "float32")
    value = np.array([[[7.0], [14.0], [0.0]]], "float32")
    output, weights = layer(query, value, key, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0, 0], [[4 / 7, 2 / 7, 1 / 7]] * 2, rtol=1e-6)
    np.testing.assert_allclose(to_numpy(output)[0, :, 0], [8, 8], rtol=1e-6)


# Windows: what a dense layer gives under a mask of pairs, with everything that a dense layer can do.


def _dense_twin(layer):
    config = {name: option for name, option in layer.get_config().items() if name not in ("window", "block_size")}
    dense = layers.MultiHeadAttention.from_config({**config, "name": "dense", "implementation": "dense"})
    dense.build((B, 19, D), (B, 19, D))
    dense.set_weights(layer.get_weights())
    return dense


OPTIONS = {
    "plain": {},
    "additive": {"score": "additive"},
    "rotary": {"positions": layers.RotaryPositions()},
    "shaw": {"positions": layers.ShawRelativePositions(2)},
    "t5": {"positions": layers.T5RelativePositions(6, 5)},
}


def _fresh(options):
    """Returns options whose objects no other layer shares."""
    return {
        name: type(option).from_config(option.get_config()) if isinstance(option, keras.layers.Layer) else option
        for name, option in options.items()
    }


def _results(layer, query, value, bias, scores=True, **options):
    """Returns output, weights, and the gradients of both for the inputs, the bias and all weights."""
    inputs = [keras.Variable(each) for each in (query, value, bias)]

    def run():
        query, value, bias = (ops.convert_to_tensor(each) for each in inputs)
        return layer(query, value, attention_bias=bias, return_attention_scores=True, **options)

    def loss():
        return sum(ops.sum(ops.sin(7 * result)) for result in run())

    return [to_numpy(result) for result in run()] + gradients(loss, inputs + layer.trainable_variables)


@pytest.mark.slow  # test_matrix.py holds these layers to the formulas as well
@blocked
@pytest.mark.parametrize(
    ("name", "implementation"),
    [(name, "auto") for name in OPTIONS] + [("plain", "blockwise"), ("shaw", "blockwise"), ("plain", "fused")],
)
def test_agrees_with_the_dense_layer(make, name, implementation, monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 500)
    queries, keys, start = lengths = (17, 19, 1)
    layer = _built(make(implementation=implementation, **_fresh(OPTIONS[name])))
    query, value, bias = (random_array(shape, 3) for shape in ((B, queries, D), (B, keys, D), (N, queries, keys)))
    mask = np.random.default_rng(3).random((B, N, queries, keys)) < 0.7
    options = {"value_mask": random_mask((B, keys), 2), "start_index": start, "use_causal_mask": name == "rotary"}
    found = _results(layer, query, value, bias, attention_mask=mask, **options)
    expected = _results(_dense_twin(layer), query, value, bias, attention_mask=mask & _near(layer, *lengths), **options)
    for result, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=1e-5 * max(1.0, np.abs(reference).max()))


@blocked
@pytest.mark.parametrize("budget", [100, 500, 10**6])
def test_chunks_of_rows_of_some_and_of_all_blocks_agree(make, budget, monkeypatch):
    layer, inputs = _built(make()), random_array((B, 19, D), 1)
    expected = layer(inputs, inputs, return_attention_scores=True)
    monkeypatch.setattr(execution, "CHUNK_BUDGET", budget)
    layer.implementation = "blockwise"
    for result, reference in zip(layer(inputs, inputs, return_attention_scores=True), expected, strict=True):
        np.testing.assert_allclose(to_numpy(result), to_numpy(reference), atol=1e-6)


@blocked
@pytest.mark.parametrize("shape", [(19,), (1, 19), (19, 1), (N, 1, 19), (B, 1, 19, 19), (1, N, 19, 1)], ids=str)
def test_biases_broadcast(make, shape):
    layer, inputs, bias = _built(make()), random_array((B, 19, D), 1), random_array(shape, 2)
    near = np.broadcast_to(_near(layer, 19, 19), (B, 19, 19))
    expected = _dense_twin(layer)(inputs, inputs, attention_mask=near, attention_bias=bias)
    np.testing.assert_allclose(to_numpy(layer(inputs, inputs, attention_bias=bias)), to_numpy(expected), atol=1e-5)
    with pytest.raises(ValueError, match="`attention_bias` must be floating point.*Received: dtype=int32"):
        layer(inputs, inputs, attention_bias=np.zeros(shape, "int32"))


@blocked
def test_dropout_in_chunks_is_that_of_one_layer(make, monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 500)
    layer, inputs = _built(make(dropout=0.5, seed=3)), random_array((B, 19, D), 1)
    for implementation in ("dense", "blockwise"):
        layer.implementation = implementation
        plain, weights = layer(inputs, inputs, return_attention_scores=True)
        trained, same = layer(inputs, inputs, return_attention_scores=True, training=True)
        np.testing.assert_allclose(to_numpy(same), to_numpy(weights), atol=1e-6)
        assert not np.allclose(to_numpy(trained), to_numpy(plain))


@blocked
def test_what_no_window_sees_does_not_leak(make):
    layer, inputs = _built(make()), random_array((B, 19, D), 1)
    before = to_numpy(layer(inputs, inputs))
    for place in (0, 7, 18):
        changed = np.where(np.arange(19)[:, None] == place, 1e4, inputs).astype("float32")
        after = to_numpy(layer(inputs, changed))
        blind = ~_near(layer, 19, 19)[:, place]
        np.testing.assert_array_equal(after[:, blind], before[:, blind])
        assert not np.any(np.all(after[:, ~blind] == before[:, ~blind], axis=-1))


# Sums of features.


@linear
def test_pairs_and_sums_agree(make):
    layer, inputs = _built(make()), random_array((B, 19, D), 1)
    query_mask, value_mask = random_mask((B, 19), 1), random_mask((B, 19), 2)
    value_mask[0] = False
    everything, zero = np.ones((B, 19, 19), bool), np.zeros((N, 19, 19), "float32")
    for causal in (False, True):
        masks = {"query_mask": query_mask, "value_mask": value_mask, "use_causal_mask": causal}
        expected = _results(layer, inputs, inputs, zero, **masks)  # the bias makes the layer go pair by pair
        variables = [keras.Variable(inputs) for _ in range(2)]

        def run(masks=masks, variables=variables):
            return layer(*(ops.convert_to_tensor(each) for each in variables), return_attention_scores=True, **masks)

        def loss(run=run):
            return sum(ops.sum(ops.sin(7 * result)) for result in run())

        found = [to_numpy(result) for result in run()] + gradients(loss, variables + layer.trainable_variables)
        for result, reference in zip(found, expected[:4] + expected[5:], strict=True):
            np.testing.assert_allclose(result, reference, atol=2e-5 * max(1.0, np.abs(reference).max()))
        for implementation in ("dense", "blockwise"):
            layer.implementation = implementation
            np.testing.assert_allclose(to_numpy(layer(inputs, inputs, **masks)), found[0], atol=1e-5)
        layer.implementation = "auto"
        alike = layer(inputs, inputs, attention_mask=everything, **masks)
        np.testing.assert_allclose(to_numpy(alike), found[0], atol=1e-5)


@linear
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_sums_are_wide_in_low_precision(make, policy):
    """A sum of 700 equal products would stop growing at 256 of them in bfloat16."""
    layer = make(dtype=policy)
    layer.build((1, 700, D), (1, 700, D))
    inputs = np.tile(random_array((1, 1, D), 1), (1, 700, 1))
    values = np.concatenate([np.zeros((1, 350, D)), np.ones((1, 350, D))], axis=1).astype("float32")
    layer.value_dense.bias.assign(np.ones(N * V))
    output = to_numpy(layer(inputs, values, inputs, use_causal_mask=True))
    half, whole = (to_numpy(layer(inputs[:, :1], values[:, part])) for part in (slice(1), slice(-1, None)))
    np.testing.assert_allclose(output[:, -1], (half + whole)[:, 0] / 2, atol=0.05)
    np.testing.assert_allclose(output[:, 300], half[:, 0], atol=0.02)


@linear
def test_large_inputs_stay_finite(make):
    layer = _built(make())
    for scale in (1e3, 1e6):
        inputs = keras.Variable(random_array((B, 19, D), 1) * scale)

        def output(inputs=inputs):
            tensor = ops.convert_to_tensor(inputs)
            return layer(tensor, tensor, use_causal_mask=True)

        assert np.all(np.isfinite(to_numpy(output())))
        for gradient in gradients(lambda output=output: ops.sum(ops.tanh(output())), [inputs]):
            assert np.all(np.isfinite(gradient))


# Random features.


@pytest.mark.parametrize(("size", "count"), [(7, 7), (7, 17), (7, 3)])
def test_random_features_are_orthogonal_and_as_long_as_normal_vectors(size, count):
    vectors = to_numpy(orthogonal_features(size, count, seed=1, dtype="float32")).T
    assert vectors.shape == (count, size)
    for start in range(0, count, size):
        block = vectors[start : start + size]
        products = block @ block.T
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-5)
    # The mean square of a normal vector is its size, and each of its features has mean 0 and variance 1.
    many = to_numpy(orthogonal_features(size, 7000, seed=2, dtype="float32")).T
    np.testing.assert_allclose(np.mean(many**2, axis=0), 1.0, atol=0.07)
    np.testing.assert_allclose(np.mean(many, axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(np.var((many**2).sum(axis=1)), 2 * size, rtol=0.1)


def test_the_seed_decides_the_features_and_they_are_saved():
    first, second, other = (layers.PerformerAttention(2, 5, 13, seed=seed) for seed in (3, 3, 4))
    for layer in (first, second, other):
        layer.build((B, 3, D), (B, 3, D))
    features = [to_numpy(layer.random_features) for layer in (first, second, other)]
    np.testing.assert_array_equal(features[0], features[1])
    assert not np.array_equal(features[0], features[2])
    assert len(first.non_trainable_weights) == 1 and first.get_config()["seed"] == 3


def test_random_features_estimate_the_softmax_without_bias():
    """Averaged over many draws, the product of the features is the kernel; the error falls with 1 / √M."""
    rng, size, draws = np.random.default_rng(1), 7, 60
    query, keys = (rng.normal(size=(1, 1, length, size)).astype("float32") / 2 for length in (1, 11))
    exact = np.exp(query[0, 0] @ keys[0, 0].T / math.sqrt(size))
    # The relative variance with one vector, where no two of them are orthogonal (the paper's lemma 2).
    variance = np.exp(np.sum((query + keys)[0, 0] ** 2, axis=-1) / math.sqrt(size)) - 1
    for count in (28, 448):
        layer, estimates = layers.PerformerAttention(1, size, count, seed=1), []
        layer.build((1, 1, size), (1, 11, size))
        for seed in range(draws):
            vectors = orthogonal_features(size, count, seed=seed, dtype="float32")
            layer.random_features.assign(vectors)
            products = ops.matmul(layer.query_features(query), ops.swapaxes(layer.key_features(keys), -1, -2))
            # The largest feature of the query is made 1; here that factor counts.
            scaled = query[0, 0, 0] / size**0.25
            factor = math.exp(np.max(scaled @ to_numpy(vectors)) - scaled @ scaled / 2)
            estimates.append(to_numpy(products)[0, 0, 0] * factor / count)
        errors = np.array(estimates) / exact[0] - 1
        assert np.all(np.abs(errors.mean(axis=0)) < 4 * errors.std(axis=0) / math.sqrt(draws))
        assert 0.4 < np.sqrt(np.mean(errors**2) / np.mean(variance / count)) < 1.1


def test_many_features_come_close_to_softmax_attention():
    inputs, errors = random_array((B, 19, D), 1), {}
    exact = layers.MultiHeadAttention(N, H)
    exact.build(inputs.shape, inputs.shape)
    randomize(exact).set_weights([weight / 3 for weight in exact.get_weights()])
    expected, weights = exact(inputs, inputs, use_causal_mask=True, return_attention_scores=True)
    for count in (16, 4096):
        layer = layers.PerformerAttention(N, H, count, seed=1)
        layer.build(inputs.shape, inputs.shape)
        for name in ("query_dense", "key_dense", "value_dense", "output_dense"):
            getattr(layer, name).set_weights(getattr(exact, name).get_weights())
        found, estimate = layer(inputs, inputs, use_causal_mask=True, return_attention_scores=True)
        errors[count] = np.abs(to_numpy(estimate) - to_numpy(weights)).max()
    assert errors[4096] < 0.05 and errors[4096] < errors[16] / 4
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=0.1)


# Caches.


@each
@pytest.mark.parametrize("room", [17, pytest.param(None, marks=pytest.mark.slow)], ids=["room", "grows"])
@pytest.mark.parametrize(
    "chunks",
    [(6, 1, 1, 5), *(pytest.param(chunks, marks=pytest.mark.slow) for chunks in ((13,), (1,) * 13))],
    ids=lambda chunks: str(len(chunks)),
)
def test_prefill_and_steps_equal_the_full_pass(make, chunks, room):
    layer, inputs = _built(make(positions=layers.RotaryPositions())), random_array((B, 13, D), 1)
    mask = np.ones((B, 17), bool)
    mask[0, :2] = mask[1, 5] = False
    expected = to_numpy(layer(inputs, inputs, value_mask=mask[:, :13], use_causal_mask=True))
    cache, start = layer.create_cache(B, room), 0
    for length in chunks:
        part, start = slice(start, start + length), start + length
        output, cache = layer(inputs[:, part], inputs[:, part], value_mask=mask[:, : room or start], cache=cache)
        np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=5e-6)
        assert int(caches.position(cache)) == start


@each
@graph_and_xla
def test_one_compiled_step_serves_all_positions(make, xla):
    layer, inputs = _built(make()), random_array((B, 9, D), 2)
    expected = to_numpy(layer(inputs, inputs, use_causal_mask=True))
    cache = layer.create_cache(B, 9)
    names = list(cache)

    def step(inputs, *values):
        output, cache = layer(inputs, inputs, cache=dict(zip(names, values, strict=True)))
        return output, *(cache[name] for name in names)

    step, values = compiled(step, xla), cache.values()
    for position in range(9):
        output, *values = step(ops.convert_to_tensor(inputs[:, position : position + 1]), *values)
        np.testing.assert_allclose(to_numpy(output)[:, 0], expected[:, position], atol=5e-6)


@blocked
def test_steps_return_weights_over_the_room_of_the_cache(make):
    layer, inputs = _built(make()), random_array((B, 9, D), 2)
    _, expected = layer(inputs, inputs, use_causal_mask=True, return_attention_scores=True)
    cache = layer.create_cache(B, 11)
    for part in (slice(0, 6), slice(6, 7), slice(7, 9)):
        _, weights, cache = layer(inputs[:, part], inputs[:, part], cache=cache, return_attention_scores=True)
        assert not np.any(to_numpy(weights)[..., 9:])
        np.testing.assert_allclose(to_numpy(weights)[..., :9], to_numpy(expected)[:, :, part], atol=2e-6)


@linear
def test_the_cache_of_sums_does_not_grow_and_keeps_float32(make):
    layer = _built(make(dtype="mixed_bfloat16"))
    cache = layer.create_cache(B, 1000)
    features = 13 if isinstance(layer, layers.PerformerAttention) else H
    assert cache["sums"].shape == (B, N, features, V + 1)
    inputs = random_array((B, 240, D), 1)
    _, at_once = layer(inputs, inputs, cache=cache)
    for part in np.split(inputs, 6, axis=1):
        _, cache = layer(part, part, cache=cache)
    sums = [to_numpy(ops.view(each["sums"], "float32")) for each in (cache, at_once)]
    np.testing.assert_allclose(*sums, rtol=1e-4, atol=1e-3)


@linear
@pytest.mark.parametrize(
    "option",
    [
        {"return_attention_scores": True},
        {"attention_mask": np.ones((B, 1, 9), bool)},
        {"attention_bias": np.zeros((1, 9), "float32")},
        {"start_index": 3},
    ],
    ids=lambda option: next(iter(option)),
)
def test_what_a_cache_of_sums_refuses(make, option):
    layer, inputs = _built(make()), random_array((B, 1, D), 1)
    message = f"has no keys in its cache to compute weights from: a call with `cache` takes no `{next(iter(option))}`."
    with pytest.raises(ValueError, match=message):
        layer(inputs, inputs, cache=layer.create_cache(B, 9), **option)


@each
def test_decoder_block(make):
    block = layers.TransformerDecoderBlock(make(), layers.MultiHeadAttention(N, H), layers.FeedForward(13))
    inputs, memory = random_array((B, 9, D), 3), random_array((B, 5, D), 4)
    block.build(inputs.shape, memory.shape)
    randomize(block)
    expected = to_numpy(block(inputs, memory))
    cache, projected = block.self_attention.create_cache(B, 9), block.project_memory(ops.convert_to_tensor(memory))
    for position in range(9):
        output, cache = block(inputs[:, position : position + 1], projected, cache=cache)
        np.testing.assert_allclose(to_numpy(output)[:, 0], expected[:, position], atol=2e-5)


# Cost.


def _largest(function):
    """Returns the number of elements of the largest tensor in the graph of a concrete function."""
    sizes = [output.shape for operation in function.graph.get_operations() for output in operation.outputs]
    return max(int(np.prod([size or 1 for size in shape])) for shape in sizes if shape.rank)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="walks a TensorFlow graph")
@each
@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_has_an_element_for_each_pair(make, causal, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(sliding_window_attention, "MIN_ROWS", 32)
    monkeypatch.setattr(linear_attention, "BLOCK_SIZE", 64)
    layer = {
        _window: lambda: layers.SlidingWindowAttention(2, 4, window=16),
        _block: lambda: layers.BlockLocalAttention(2, 4, block_size=16),
        _linear: lambda: layers.LinearAttention(2, 4),
        _performer: lambda: layers.PerformerAttention(2, 4, num_features=8),
    }[make]()
    layer.build((1, 512, 8), (1, 512, 8))

    @tf.function(input_signature=[tf.TensorSpec((1, length, 8)) for length in (512, 512)])
    def forward_and_backward(query, value):
        with tf.GradientTape() as tape:
            tape.watch((query, value))
            output = layer(query, value, value_mask=tf.ones((1, 512), tf.bool), use_causal_mask=causal)
        return tape.gradient(output, (query, value))

    assert _largest(forward_and_backward.get_concrete_function()) <= 512 * 512 // 2  # of a head alone


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="walks a TensorFlow graph")
@blocked
def test_a_step_looks_at_a_window_of_the_cache(make):
    import tensorflow as tf

    layer = _built(make())
    cache = layer.create_cache(B, 1000)

    @tf.function
    def step(query, value, key, index):
        visible = layers.attention.masks.build_visibility((1, 1000), index, causal=True, heads=True)
        return layer.attend(query, {"key": key, "value": value}, visible, None, False, False)["output"]

    function = step.get_concrete_function(
        tf.TensorSpec((B, N, 1, H)), cache["value"], cache["key"], tf.TensorSpec((), tf.int32)
    )
    made = [
        operation for operation in function.graph.get_operations() if operation.type in ("GatherV2", "BatchMatMulV2")
    ]
    assert max(int(np.prod(operation.outputs[0].shape)) for operation in made) <= B * N * V * 5


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sizes are always known elsewhere")
@each
@graph_and_xla
def test_unknown_sizes(make, xla):
    import tensorflow as tf

    layer = _built(make())

    def run(query, value, value_mask):
        options = {"value_mask": value_mask, "return_attention_scores": True}
        return [layer(query, value, use_causal_mask=causal, **options) for causal in (False, True)]

    shapes = [((None, None, D), tf.float32), ((None, None, D), tf.float32), ((None, None), tf.bool)]
    signature = [tf.TensorSpec(*shape) for shape in shapes]
    function = tf.function(run, input_signature=signature, jit_compile=xla)
    for queries, keys in [(9, 13)] if xla else [(19, 19), (1, 19), (6, 3)]:
        given = random_array((B, queries, D), 1), random_array((B, keys, D), 2), random_mask((B, keys))
        for result, reference in zip(
            keras.tree.flatten(function(*given)), keras.tree.flatten(run(*given)), strict=True
        ):
            np.testing.assert_allclose(to_numpy(result), to_numpy(reference), atol=5e-6)


# Options that are refused.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: layers.SlidingWindowAttention(2, 4, 0),
            "`window` must be a positive integer. Received: window=0.",
        ),
        (
            lambda: layers.BlockLocalAttention(2, 4, 2.5),
            "`block_size` must be a positive integer. Received: block_size=2.5.",
        ),
        (
            lambda: layers.PerformerAttention(2, 4, 0),
            "`num_features` must be a positive integer. Received: num_features=0.",
        ),
        (
            lambda: _window(score="location"),
            "`score` of SlidingWindowAttention must depend on queries and keys; LocationScore depends on the place of "
            "a key among all keys, but a block sees only some. Received: score=<LocationScore",
        ),
        (
            lambda: _block(score=layers.LocationScore(9)),
            "`score` of BlockLocalAttention must depend on queries and keys; LocationScore",
        ),
        (
            lambda: _linear(score="dot"),
            "LinearAttention takes no `score`: its features define one. Received: score='dot'.",
        ),
        (
            lambda: _linear(dropout=0.1),
            "`dropout` of LinearAttention must be 0, since it has no weights to drop; put a Dropout layer after it. "
            "Received: dropout=0.1.",
        ),
        (
            lambda: _performer(positions=layers.ALiBiPositions()),
            "`positions` of PerformerAttention must act on queries and keys, like RotaryPositions: there are no "
            "scores to act on. Received: positions=<ALiBiPositions",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError) as error:
        make()
    assert message in str(error.value)


def test_blocked_base_says_what_to_override():
    from zoo.layers.attention.blocked import BlockedAttention

    layer = BlockedAttention(2, 4)
    with pytest.raises(NotImplementedError, match="BlockedAttention must override `sees`"):
        layer.sees(None, None)
    with pytest.raises(NotImplementedError, match="BlockedAttention must override `blocks`"):
        layer.blocks(3, 5, 0, False)
