"""The optimizer against NumPy: each gradient is summed, then clipped, then squared, once a step."""

import keras
import numpy as np
import pytest

import zoo
from training.config.options import TrainingConfig
from training.optimization.optimizer import exclude_from_decay, make_optimizer

# A symbol that comes thrice, one that comes once, and one that does not.
SYMBOLS = np.array([[1, 1, 2], [1, 3, 3]], "int32")


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
    """Returns the model with given weights, its gradient at any weights for any symbols, in NumPy."""
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


def gradients(weights, symbols, scale=1.0):
    """Returns the gradient of `Σ scale · k · output_k` with respect to table, kernel and bias."""
    table, kernel, _ = weights
    upstream = scale * np.array([1.0, 2.0, 3.0])
    of_table, of_kernel = np.zeros_like(table), np.zeros_like(kernel)
    for symbol in symbols.ravel():
        of_table[symbol] += kernel @ upstream
        of_kernel += np.outer(table[symbol], upstream)
    return [of_table, of_kernel, upstream * symbols.size]


def reference(weights, batches, settings, scale=1.0):
    """Returns weights and their moving average after steps of `accumulate_steps` batches each."""
    weights = [np.array(weight, "float64") for weight in weights]
    means, squares = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    average = None
    for step in range(len(batches) // settings.accumulate_steps):
        taken = batches[step * settings.accumulate_steps :][: settings.accumulate_steps]
        summed = [np.mean(parts, axis=0) for parts in zip(*(gradients(weights, b, scale) for b in taken), strict=True)]
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
        share = settings.ema if average else 0.0
        average = [share * old + (1 - share) * new for old, new in zip(average or weights, weights, strict=True)]
    return weights, average


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"clip_norm": 0.0, "beta_2": 0.9},
        {"weight_decay": 0.3},
        {"accumulate_steps": 3},
        {"accumulate_steps": 3, "weight_decay": 0.3, "clip_norm": 100.0},
    ],
    ids=lambda settings: "-".join(settings) or "usual",
)
def test_steps(settings):
    settings = TrainingConfig(**{"learning_rate": 0.1, "warmup_steps": 4, **settings})
    model = tiny(settings)
    before = model.get_weights()
    chance = np.random.default_rng(1)
    batches = [SYMBOLS, *chance.integers(0, 5, size=(5, 2, 3)).astype("int32")]
    for batch in batches:
        model.train_on_batch(batch, np.zeros((2, 1)))
    expected, _ = reference(before, batches, settings)
    for weight, value in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(weight, value, rtol=1e-4, atol=1e-6)


def test_moving_average():
    settings = TrainingConfig(learning_rate=0.1, warmup_steps=1, ema=0.7)
    model = tiny(settings)
    before = model.get_weights()
    for _ in range(4):
        model.train_on_batch(SYMBOLS, np.zeros((2, 1)))
    expected, averages = reference(before, [SYMBOLS] * 4, settings)
    found = [v for v in model.optimizer.variables if v.path.endswith("_average")]
    for weight, average, *values in zip(model.get_weights(), found, expected, averages, strict=True):
        np.testing.assert_allclose(weight, values[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.array(average), values[1], rtol=1e-4, atol=1e-6)


def test_the_norm_counts_a_frequent_symbol_once():
    """Its gradients are added before they are squared: Keras on TensorFlow would let this step through unclipped."""
    settings = TrainingConfig(learning_rate=1.0, warmup_steps=1)
    model = tiny(settings)
    norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients(model.get_weights(), SYMBOLS)))
    scale = 1.001 / norm
    model = tiny(settings, scale)
    model.train_on_batch(SYMBOLS, np.zeros((2, 1)))
    momentum = next(v for v in model.optimizer.variables if v.path.endswith("embeddings_momentum"))
    expected = 0.1 * gradients(tiny(settings).get_weights(), SYMBOLS, scale)[0] / 1.001
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
