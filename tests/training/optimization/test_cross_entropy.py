"""Loss and metric against NumPy, token by token."""

import math
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from training.optimization.cross_entropy import MeanOverTokens, TokenCrossEntropy, cross_entropy, perplexity

B, T, V = 3, 5, 7


@pytest.fixture
def data():
    chance = np.random.default_rng(0)
    logits = chance.normal(size=(B, T, V)).astype("float32") * 3
    tokens = chance.integers(0, V, size=(B, T)).astype("int32")
    weights = (np.arange(T)[None] < np.array([5, 2, 3])[:, None]).astype("float32")
    return tokens, logits, weights


def log_softmax(row):
    row = row.astype("float64")
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


def reference(tokens, logits, weights, smoothing):
    """Returns −Σ q log p with q = (1 − ε) · one-hot + ε / V, averaged over the tokens that count."""
    total = count = 0.0
    for b in range(len(tokens)):
        for t in range(len(tokens[b])):
            log_p = log_softmax(logits[b, t])
            for v in range(len(log_p)):
                q = (1 - smoothing) * (v == tokens[b, t]) + smoothing / len(log_p)
                total -= weights[b, t] * q * log_p[v]
            count += weights[b, t]
    return total / count


def test_a_case_by_hand():
    """Logits (ln 3, 0): p = (3/4, 1/4), so the first token costs ln 4/3 and the second ln 4."""
    logits = np.array([[[np.log(3), 0], [np.log(3), 0]]], "float32")
    np.testing.assert_allclose(cross_entropy(np.array([[0, 1]]), logits), [[np.log(4 / 3), np.log(4)]], rtol=1e-6)


def gradient(function, logits):
    """Returns the gradient of a scalar function of the logits."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        logits = tf.constant(logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            result = function(logits)
        return tape.gradient(result, logits).numpy()
    if keras.backend.backend() == "jax":
        import jax

        return np.array(jax.jit(jax.grad(function))(logits))
    logits = keras.ops.convert_to_tensor(logits).requires_grad_()
    function(logits).backward()
    return logits.grad.numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_loss(data, smoothing):
    """Of what has weight alone; in float32; its gradient is softmax minus the smoothed distribution."""
    tokens, logits, weights = data
    loss = MeanOverTokens(label_smoothing=smoothing)
    plain = float(loss(*data))
    np.testing.assert_allclose(plain, reference(*data, smoothing), rtol=1e-5)
    unweighted = reference(tokens, logits, np.ones_like(weights), smoothing)
    np.testing.assert_allclose(float(loss(tokens, logits)), unweighted, rtol=1e-5)

    other_logits = np.where(weights[..., None] > 0, logits, 99 - logits)
    assert float(loss(np.where(weights > 0, tokens, 0), other_logits, weights)) == plain
    wider = [np.concatenate([array, array[:, :2] * 0], axis=1) for array in data]
    np.testing.assert_allclose(float(loss(*wider)), plain, rtol=1e-6)
    assert float(loss(tokens, logits, weights * 0)) == 0.0

    rounded = keras.ops.cast(logits, "bfloat16")
    of_rounded = loss(tokens, rounded, weights)
    assert keras.backend.standardize_dtype(of_rounded.dtype) == "float32"
    expected = reference(tokens, np.array(keras.ops.cast(rounded, "float32")), weights, smoothing)
    np.testing.assert_allclose(float(of_rounded), expected, rtol=1e-5)

    found = gradient(lambda z: loss(tokens, z, weights), logits)
    for b in range(B):
        for t in range(T):
            target = np.full(V, smoothing / V)
            target[tokens[b, t]] += 1 - smoothing
            expected = weights[b, t] * (np.exp(log_softmax(logits[b, t])) - target) / weights.sum()
            np.testing.assert_allclose(found[b, t], expected, atol=1e-6)


def test_large_logits_are_finite():
    logits = np.array([[[1e4, 0.0, -1e4]]], "float32")
    for token, expected in ((0, 0.0), (2, 2e4)):
        assert float(MeanOverTokens()(np.array([[token]]), logits)) == expected


def test_metric(data):
    """A mean over tokens and not of means, in float32 whatever the logits are."""
    tokens, logits, weights = data
    metric = TokenCrossEntropy()
    for b in range(B):
        metric.update_state(tokens[b : b + 1], logits[b : b + 1], weights[b : b + 1])
    np.testing.assert_allclose(float(metric.result()), reference(*data, 0.0), rtol=1e-5)
    means = [reference(tokens[b : b + 1], logits[b : b + 1], weights[b : b + 1], 0.0) for b in range(B)]
    assert abs(np.mean(means) - float(metric.result())) > 0.01, "the case tells the two apart"
    metric.reset_state()
    assert float(metric.result()) == 0.0
    rounded = keras.ops.cast(logits, "bfloat16")
    metric.update_state(tokens, rounded)
    expected = reference(tokens, np.array(keras.ops.cast(rounded, "float32")), np.ones_like(weights), 0.0)
    np.testing.assert_allclose(float(metric.result()), expected, rtol=1e-5)


def test_perplexity_is_finite():
    assert perplexity(math.log(8)) == pytest.approx(8)
    assert math.isfinite(perplexity(1e5))


PROGRAM = """
import re
import jax, keras, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from training.hardware.mesh import Mesh
from training.optimization.cross_entropy import cross_entropy

logits = np.random.default_rng(0).normal(size=(8, 3, 22)).astype("float32")
tokens = np.arange(24, dtype="int32").reshape(8, 3) % 22
for axes, spread in (({"data": 4, "model": 1}, ("data",)), ({"data": 2, "model": 2}, ("data", None, "model"))):
    with Mesh(axes, keras.distribution.list_devices()).distribution().scope():
        mesh = keras.distribution.distribution().device_mesh.backend_mesh
        rows, place, nowhere = (NamedSharding(mesh, PartitionSpec(*dims)) for dims in (spread[:1], spread, ()))
        step = jax.value_and_grad(lambda logits, tokens: cross_entropy(tokens, logits, 0.1).mean())
        step = jax.jit(step, in_shardings=(place, rows), out_shardings=(nowhere, place))
        compiled = step.lower(logits, tokens).compile()
        print(sorted(set(re.findall("all-gather|all-to-all|collective-permute", compiled.as_text()))))
        print(float(step(logits, tokens)[0]))
print(float(cross_entropy(tokens, logits, 0.1).mean()))
"""


@pytest.mark.nightly
def test_logits_stay_on_their_devices():
    pytest.importorskip("jax")
    flags = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, one, second, other, alone = done.stdout.splitlines()
    assert first == second == "[]", "nothing is gathered"
    np.testing.assert_allclose([float(one), float(other)], float(alone), rtol=1e-6)
