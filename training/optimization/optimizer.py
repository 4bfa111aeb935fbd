"""Adam and Muon that weight accumulated gradients by tokens, and sum those of an embedding on TensorFlow."""

import math
from collections.abc import Sequence
from typing import Any

import keras

from training.config.options import TrainingConfig
from training.optimization.schedules import WarmupSchedule
from zoo.errors import InputError

_MATRIX = 2


class _WeightedBatches(keras.optimizers.Optimizer):
    """An optimizer that weights the batches of a step by their tokens, `g = Σ_i n_i g_i / Σ_i n_i`.

    With g_i the gradient of the mean loss over the n_i tokens of batch i, g is the gradient of the mean over all
    tokens of the step, as in one large batch. Keras takes the mean of the g_i.
    """

    tokens: Any = 1.0  # of the current batch; see `accumulate_over_tokens`
    _factor: Any = None

    def __init__(self, **options: Any):
        super().__init__(**options)
        if self.gradient_accumulation_steps:
            self.accumulated_tokens = self.add_variable((), dtype="float32", name="accumulated_tokens")

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        steps = self.gradient_accumulation_steps
        if not steps:
            super().apply(grads, trainable_variables)
            return
        tokens = keras.ops.cast(self.tokens, "float32")
        total = self.accumulated_tokens + tokens
        ends = keras.ops.equal((self._iterations + 1) % steps, 0)
        self.accumulated_tokens.assign(keras.ops.where(ends, 0.0, total))
        # Keras divides the accumulated sum by the number of steps before it clips.
        self._factor = steps / keras.ops.maximum(total, 1e-9)
        grads = [grad if grad is None else grad * keras.ops.cast(tokens, grad.dtype) for grad in grads]
        super().apply(grads, trainable_variables)
        self._factor = None

    def finalize_variable_values(self, var_list: Any) -> None:
        """Does nothing; Keras would replace the weights by their moving averages at the end of `fit`.

        Training may continue from these weights, for example after an unfinished round; checkpoints have the averages.
        """

    def _clip_gradients(self, grads: Sequence[Any]) -> Any:
        if self._factor is not None:
            grads = [grad if grad is None else grad * keras.ops.cast(self._factor, grad.dtype) for grad in grads]
        return super()._clip_gradients(grads)


def accumulate_over_tokens(model: keras.Model) -> None:
    """Makes the optimizer of a compiled model, if it accumulates gradients, weight batches by their tokens.

    Call it after other functions that replace the model's `train_step`. Losses that a model adds itself
    (`model.losses`) are also weighted by the tokens of their batch, even if they are means over something else.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if not optimizer.gradient_accumulation_steps:
        return
    plain = model.train_step

    def train_step(*arguments: Any) -> Any:
        _, y, weights = keras.utils.unpack_x_y_sample_weight(arguments[-1])  # On JAX the state is before the batch.
        optimizer.tokens = math.prod(y.shape) if weights is None else keras.ops.sum(weights)
        try:
            return plain(*arguments)
        finally:
            optimizer.tokens = 1.0

    model.train_step = train_step


class Adam(_WeightedBatches, keras.optimizers.Adam):
    """Adam that squares gradients only after summing them over devices and over the occurrences of a token.

    On TensorFlow the gradient of an embedding is a list of rows, one for each position in the batch. Keras squares and
    clips these rows, so that the second moment of a frequent token and the global norm are too small. With several
    devices, it clips the gradient of each separately. This Adam also updates a variable in one operation; Keras' 26
    take a third of the time until the first step. On other backends, only the accumulation of gradients and the weights
    after `fit` differ from Keras' Adam.

    Args:
        num_devices: Devices that a batch is spread over.
        **options: Options of `keras.optimizers.Adam`.

    Reference:
        Kingma and Ba 2015, algorithm 1, https://arxiv.org/abs/1412.6980;
        Loshchilov and Hutter 2019 (weight decay), algorithm 2, https://arxiv.org/abs/1711.05101
    """

    def __init__(self, *, num_devices: int = 1, **options: Any):
        super().__init__(**options)
        self.num_devices = num_devices

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        grads = _dense(grads)
        if keras.backend.backend() == "tensorflow" and self.num_devices > 1:
            grads = self._summed(grads)
        super().apply(grads, trainable_variables)

    @staticmethod
    def _summed(grads: Sequence[Any]) -> list[Any]:
        """Returns gradients summed over the devices."""
        import tensorflow as tf

        dense = [grad for grad in grads if grad is not None]
        summed = iter(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, dense))
        return [grad if grad is None else next(summed) for grad in grads]

    def _backend_update_step(self, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        if keras.backend.backend() == "tensorflow":
            step = keras.ops.cast(self.iterations + 1, "float32")
            unbiased = keras.ops.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
            learning_rate = keras.ops.cast(learning_rate, "float32") * unbiased
        super()._backend_update_step(grads, trainable_variables, learning_rate)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        if keras.backend.backend() != "tensorflow":
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=0.0,  # The rate includes the bias correction, see `_backend_update_step`.
            beta2_power=0.0,
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> list[Any]:
        # The gradients are already summed; Keras would sum them again here, after clipping.
        return list(grads_and_vars)


def make_schedule(settings: TrainingConfig) -> WarmupSchedule:
    """Returns the schedule of a run: its learning rate for each batch."""
    return WarmupSchedule(
        settings.learning_rate,
        settings.warmup_steps,
        settings.schedule,
        settings.total_steps,
        settings.cooldown,
        settings.final_rate,
        settings.accumulate_steps,
    )


class Muon(_WeightedBatches, keras.optimizers.Muon):
    """Muon for hidden matrices, `W ← W − η · 0.2 √max(n, m) · NewtonSchulz(M)` with M the momentum; Adam for others.

    Unlike Keras' Muon, it sums gradients that TensorFlow represents as rows of a table, and selects embeddings and the
    output for Adam by identity. Keras selects names with "embedding", which those of this project do not have.

    Args:
        others: The variables for Adam besides those that are not matrices, or have an axis of size 1.
        **options: Options of `keras.optimizers.Muon`.

    Reference:
        Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks",
        https://kellerjordan.github.io/posts/muon; Liu et al. 2025, "Muon is Scalable for LLM Training", equation 4
        (the scale of the update), https://arxiv.org/abs/2502.16982
    """

    def __init__(self, *, others: Sequence[Any] = (), **options: Any):
        super().__init__(**options)
        self.others = {id(variable) for variable in others}

    def _should_use_adamw(self, variable: Any) -> bool:
        return id(variable) in self.others or len(variable.shape) != _MATRIX or min(variable.shape) == 1

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        super().apply(_dense(grads), trainable_variables)


def _dense(grads: Sequence[Any]) -> Sequence[Any]:
    """Returns gradients as tensors; those of embeddings on TensorFlow are summed over the occurrences of a token."""
    if keras.backend.backend() != "tensorflow":
        return grads
    import tensorflow as tf

    return [grad if grad is None else tf.convert_to_tensor(grad) for grad in grads]


def _for_adam(model: keras.Model) -> list[Any]:
    """Returns the variables of a model that are not hidden matrices, including those with two axes.

    The latter are those of embeddings and other lookup tables, and of the output layer, if there is one.
    """
    tables = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Embedding)]
    outputs = [getattr(model, name, None) for name in ("output_dense", "output_layer")]
    layers = [*tables, *(output for output in outputs if isinstance(output, keras.layers.Layer))]
    matrices = {id(variable) for layer in layers for variable in layer.trainable_variables}
    kernels = ("kernel", "recurrent_kernel")
    return [v for v in model.trainable_variables if id(v) in matrices or v.name not in kernels]


def make_optimizer(
    settings: TrainingConfig, num_devices: int = 1, model: keras.Model | None = None
) -> keras.optimizers.Optimizer:
    """Returns the optimizer of a run whose batches are spread over `num_devices`; without a model, it is Adam.

    Raises:
        InputError: For Muon on several devices.
    """
    options: dict[str, Any] = {
        "learning_rate": make_schedule(settings),
        "epsilon": 1e-9,
        "weight_decay": settings.weight_decay or None,
        "global_clipnorm": settings.clip_norm or None,
        "gradient_accumulation_steps": settings.accumulate_steps if settings.accumulate_steps > 1 else None,
        "use_ema": bool(settings.ema),
        # Keras updates the average after every batch, even if the batch does not end a step.
        "ema_momentum": settings.ema ** (1 / settings.accumulate_steps),
    }
    if settings.optimizer == "adam" or model is None:
        return Adam(num_devices=num_devices, beta_2=settings.beta_2, **options)
    if num_devices > 1:
        raise InputError(f"training.optimizer=muon is for one device. Received: training.devices={num_devices}.")
    decay = settings.weight_decay or None
    return Muon(others=_for_adam(model), adam_beta_2=settings.beta_2, adam_weight_decay=decay, **options)


def exclude_from_decay(model: keras.Model) -> None:
    """Excludes what is no matrix, such as biases and gains of normalisations, from a compiled model's weight decay."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    # The bias of several heads has two axes.
    vectors = [v for v in model.trainable_variables if len(v.shape) < _MATRIX or v.name == "bias"]
    optimizer.exclude_from_weight_decay(vectors)
