"""The optimizer against NumPy: each gradient is summed, then clipped, then squared, once a step."""

import keras
import numpy as np
import pytest

import zoo
from training.config.options import TrainingConfig
from training.optimization.cross_entropy import MeanOverTokens, average_over_steps
from training.optimization.optimizer import accumulate_over_tokens, exclude_from_decay, make_optimizer

# A token that comes thrice, one that comes once, and one that does not.
TOKENS = np.array([[1, 1, 2], [1, 3, 3]], "int32")


class Tiny(keras.Model):
    """Embedding and linear map; its loss is the sum of its outputs, weighted by their place."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(5, 2)
        self.linear = keras.layers.Dense(3)

    def build(self, input_shape=None):
        self.embedding.build((None, None))
        self.linear.build((None, None, 2))
        self.built = True

    def call(self, inputs):
        return self.linear(self.embedding(inputs))


def tiny(settings, scale=1.0):
    """Returns the model with given weights, its gradient at any weights for any tokens, in NumPy."""
    model = Tiny()
    model.build()
    chance = np.random.default_rng(0)
    model.set_weights([chance.normal(size=weight.shape) for weight in model.weights])
    model.compile(
        make_optimizer(settings),
        loss=lambda y, outputs: scale * keras.ops.sum(outputs * keras.ops.cumsum(keras.ops.ones_like(outputs), -1)),
        jit_compile=False,
    )
    if settings.weight_decay:
        exclude_from_decay(model)
    return model


def gradients(weights, tokens, scale=1.0):
    """Returns the gradient of `Σ scale · k · output_k` with respect to table, kernel and bias."""
    table, kernel, _ = weights
    upstream = scale * np.array([1.0, 2.0, 3.0])
    of_table, of_kernel = np.zeros_like(table), np.zeros_like(kernel)
    for token in tokens.ravel():
        of_table[token] += kernel @ upstream
        of_kernel += np.outer(table[token], upstream)
    return [of_table, of_kernel, upstream * tokens.size]


def reference(weights, batches, settings, scale=1.0):
    """Returns weights and their moving average after steps of `accumulate_steps` batches each."""
    weights = [np.array(weight, "float64") for weight in weights]
    means, squares = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    average = None
    for step in range(len(batches) // settings.accumulate_steps):
        taken = batches[step * settings.accumulate_steps :][: settings.accumulate_steps]
        summed = [np.mean(parts, axis=0) for parts in zip(*(gradients(weights, b, scale) for b in taken), strict=True)]
        before = [weight.copy() for weight in weights]
        norm = np.sqrt(sum(np.sum(gradient**2) for gradient in summed))
        factor = min(1.0, settings.clip_norm / norm) if settings.clip_norm else 1.0
        rate = settings.learning_rate * min((step + 1) / settings.warmup_steps, 1.0)
        for index, gradient in enumerate(summed):
            gradient = gradient * factor
            if weights[index].ndim > 1:
                weights[index] -= rate * settings.weight_decay * weights[index]
            means[index] += 0.1 * (gradient - means[index])
            squares[index] += (1 - settings.beta_2) * (gradient**2 - squares[index])
            corrected = means[index] / (1 - 0.9 ** (step + 1))
            root = np.sqrt(squares[index] / (1 - settings.beta_2 ** (step + 1)))
            weights[index] -= rate * corrected / (root + 1e-9)
        # Keras averages after every batch: after those that change nothing the weights before the step.
        share = settings.ema ** (1 / settings.accumulate_steps) if step else 0.0
        for values in [*[before] * (settings.accumulate_steps - 1), weights]:
            average = [share * old + (1 - share) * new for old, new in zip(average or weights, values, strict=True)]
    return weights, average


@pytest.mark.parametrize(
    "settings",
    [
        {"ema": 0.7},
        {"accumulate_steps": 3, "weight_decay": 0.3, "clip_norm": 0.0, "beta_2": 0.9, "ema": 0.7},
    ],
    ids="-".join,
)
def test_steps(settings):
    settings = TrainingConfig(**{"learning_rate": 0.1, "warmup_steps": 4, **settings})
    model = tiny(settings)
    before = model.get_weights()
    chance = np.random.default_rng(1)
    batches = [TOKENS, *chance.integers(0, 5, size=(5, 2, 3)).astype("int32")]
    for batch in batches:
        model.train_on_batch(batch, np.zeros((2, 1)))
    expected, averages = reference(before, batches, settings)
    found = [v for v in model.optimizer.variables if v.path.endswith("_average")]
    for weight, average, *values in zip(model.get_weights(), found, expected, averages, strict=True):
        np.testing.assert_allclose(weight, values[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.array(average), values[1], rtol=1e-4, atol=1e-6)


def step_of(settings, batches, translator=False, dtype="float32"):
    """Returns the weights of a model before and after steps on batches of sources, targets, answers and weights."""
    keras.utils.set_random_seed(5)
    if translator:
        sizes = {"num_layers": 1, "model_dim": 8, "intermediate_dim": 8, "num_heads": 2, "dropout": 0}
        policy = keras.DTypePolicy(dtype)
        model = zoo.create_model("transformer_tiny", source_vocab_size=9, target_vocab_size=9, dtype=policy, **sizes)
    else:
        model = Tiny()
        model.build()
    optimizer = make_optimizer(settings, model=model)
    optimizer.epsilon = 1e-4  # Gradients that are nothing but rounding, as those of the biases of keys, make no step.
    loss = MeanOverTokens(label_smoothing=0.1)
    model.compile(optimizer, loss=loss, jit_compile=keras.backend.backend() == "jax")
    average_over_steps(model)
    accumulate_over_tokens(model)
    before = model.get_weights()
    for source, target, wanted, weights in batches:
        inputs = {"source": source, "target": target} if translator else source
        model.train_on_batch(inputs, wanted, sample_weight=weights)
    return before, model.get_weights()


@pytest.mark.parametrize(
    ("optimizer", "model"),
    [
        ("adam", {}),
        pytest.param("adam", {"translator": True, "dtype": "mixed_float16"}, marks=pytest.mark.nightly),
        pytest.param("muon", {"translator": True}, marks=pytest.mark.nightly),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())) or "tiny",
)
def test_accumulated_batches_take_the_step_of_the_large_one(optimizer, model):
    """Of 1, 4, 10 and 0 tokens: a mean of means would give the first as much weight as the third."""
    chance = np.random.default_rng(2)
    source, target = chance.integers(1, 5, size=(2, 8, 5)).astype("int32")
    wanted = chance.integers(0, 3, size=(8, 5)).astype("int32")
    weights = np.zeros((8, 5), "float32")
    weights[0, 0] = weights[2, :3] = weights[3, 0] = weights[4:6] = 1
    whole = (source, target, wanted, weights)
    parts = [tuple(array[row : row + 2] for array in whole) for row in range(0, 8, 2)]
    options = {"learning_rate": 0.02, "warmup_steps": 1, "clip_norm": 0.5, "optimizer": optimizer}
    before, expected = step_of(TrainingConfig(**options), [whole, whole], **model)
    _, found = step_of(TrainingConfig(accumulate_steps=4, **options), [*parts, *parts], **model)
    tolerance = 2e-3 if "dtype" in model else 2e-5
    for value, large in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, large, atol=tolerance)
    assert max(np.abs(value - other).max() for value, other in zip(found, before, strict=True)) > 0.005


def test_the_norm_counts_a_frequent_token_once():
    """Its gradients are added before they are squared: Keras on TensorFlow would let this step through unclipped."""
    settings = TrainingConfig(learning_rate=1.0, warmup_steps=1)
    model = tiny(settings)
    norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients(model.get_weights(), TOKENS)))
    scale = 1.001 / norm
    model = tiny(settings, scale)
    model.train_on_batch(TOKENS, np.zeros((2, 1)))
    momentum = next(v for v in model.optimizer.variables if v.path.endswith("embeddings_momentum"))
    expected = 0.1 * gradients(tiny(settings).get_weights(), TOKENS, scale)[0] / 1.001
    np.testing.assert_allclose(np.array(momentum), expected, rtol=1e-5)


def test_only_matrices_decay():
    options = {"num_layers": 1, "model_dim": 6, "intermediate_dim": 5, "num_heads": 2}
    model = zoo.create_model("transformer_tiny", source_vocab_size=7, target_vocab_size=7, **options)
    model.compile(make_optimizer(TrainingConfig(weight_decay=0.5)))
    exclude_from_decay(model)
    model.optimizer.build(model.trainable_variables)
    decay = {v.path: model.optimizer._use_weight_decay(v) for v in model.trainable_variables}
    names = {path.rpartition("/")[2] for path, decays in decay.items() if decays}
    assert names == {"kernel", "embeddings"}
    assert {path.rpartition("/")[2] for path, decays in decay.items() if not decays} >= {"bias", "gamma", "beta"}
