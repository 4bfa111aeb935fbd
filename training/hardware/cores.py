"""Data parallelism on the cores of a processor: each core computes its rows of every batch."""

import functools
import itertools
from typing import Any

import keras

from training.config.options import TrainingConfig
from zoo.errors import InputError
from zoo.runtime.cores import available_cores, has_accelerator

# For smaller parts of a batch, adding up the parts takes longer than separate cores save.
_TOKENS_PER_CORE = 512


def _reason_against(settings: TrainingConfig) -> str:
    """Returns the reason why cores cannot share batches with these settings; empty if they can."""
    if keras.backend.backend() != "tensorflow":
        return f"{keras.backend.backend()} uses the cores by itself"
    if has_accelerator():
        return "the model is trained on an accelerator"
    if settings.devices > 1:
        return f"training.devices={settings.devices}"
    return f"training.jit={settings.jit}" if settings.jit == "on" else ""


def choose_cores(settings: TrainingConfig) -> int:
    """Returns the number of cores that share each batch of a run.

    Raises:
        InputError: If several cores are requested but cannot share batches.
    """
    reason = _reason_against(settings)
    if settings.cores:
        if settings.cores > 1 and reason:
            raise InputError(f"Cores do not share batches where {reason}. Received: training.cores={settings.cores}.")
        return settings.cores
    return 1 if reason else max(1, min(available_cores(), settings.batch_tokens // _TOKENS_PER_CORE))


def use_cores(count: int, available: int = 0) -> None:
    """Sets TensorFlow's threads so that the parts of a batch are computed in parallel, each on its own cores.

    This has no effect in a process that has already used TensorFlow.

    Args:
        count: Cores that share each batch; with 1 nothing changes.
        available: Cores of the machine; 0 for those that the process may use.
    """
    if count < 2:
        return
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(1, (available or available_cores()) // count))
        tf.config.threading.set_inter_op_parallelism_threads(count)
    except RuntimeError:
        pass


def share_batches(model: keras.Model, metrics: list[keras.metrics.Metric], count: int, together: int = 1) -> None:
    """Makes a model's training step compute the parts of each batch in parallel, each on one core.

    TensorFlow itself splits each operation over the cores, and most are too small for that. Loss, gradients and
    metrics are those of the whole batch; each part has its own dropout.

    Args:
        model: The compiled model.
        metrics: Its metrics except the loss, all of which must be sums over examples.
        count: Number of parts; a batch has at least as many rows. With 1 nothing changes.
        together: Number of consecutive rows that stay in one part.
    """
    if count > 1:
        model.train_step = functools.partial(_train_step, model, metrics, count, together)


def _train_step(model: keras.Model, metrics: list[keras.metrics.Metric], count: int, together: int, data: Any) -> Any:
    import tensorflow as tf

    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    variables = model.trainable_variables
    (mean_loss,) = [metric for metric in model.metrics if metric.name == "loss"]
    sums = [variable for metric in metrics for variable in metric.variables]
    states = model.non_trainable_variables
    total = tf.reduce_sum(weights)

    def compute_part(number: Any, x: Any, y: Any, weights: Any) -> Any:
        """Returns the gradients and the loss of a part, and its values of metrics and states."""
        values = [
            *((variable, tf.zeros_like(variable.value)) for variable in sums),
            *((state, _state_of_part(state, number)) for state in states),
        ]
        with keras.StatelessScope(state_mapping=values) as scope:
            with tf.GradientTape() as tape:
                outputs = model(x, training=True)
                loss = model.compute_loss(x, y, outputs, weights, training=True)
                loss *= tf.math.divide_no_nan(tf.reduce_sum(weights), total)
                scaled = model.optimizer.scale_loss(loss)
            model.compute_metrics(x, y, outputs, weights)
            grads = tape.gradient(scaled, [variable.value for variable in variables])
            grads = [grad if grad is None else tf.convert_to_tensor(grad) for grad in grads]
            return grads, loss, *([scope.get_current_value(value) for value in group] for group in (sums, states))

    # Traced once, for all parts. A part that wrote variables would make TensorFlow run the parts in sequence.
    compute_part = tf.function(compute_part, autograph=False)
    ends = [tf.shape(weights)[0] // together * number // count * together for number in range(count + 1)]
    parts = []
    for number, (first, last) in enumerate(itertools.pairwise(ends)):
        part = keras.tree.map_structure(lambda array, rows=slice(first, last): array[rows], (x, y, weights))
        parts.append(compute_part(tf.constant(number), *part))
    grads, losses, part_sums, part_states = zip(*parts, strict=True)
    model.optimizer.apply([None if of[0] is None else tf.add_n(of) for of in zip(*grads, strict=True)], variables)
    mean_loss.update_state(tf.add_n(losses))
    for variable, values in zip(sums, zip(*part_sums, strict=True), strict=True):
        variable.assign_add(tf.add_n(values))
    for state, value in zip(states, part_states[0], strict=True):
        state.assign(value)
    return model.get_metrics_result()


def _state_of_part(state: Any, number: Any) -> Any:
    """Returns the value of a state for a part of a batch; states of random generators differ between parts."""
    import tensorflow as tf

    if state.shape != (2,) or not keras.backend.is_int_dtype(state.dtype):
        return tf.identity(state.value)
    return state.value + tf.cast(tf.stack([number * 0x3C6EF35F, 0]), state.dtype)
