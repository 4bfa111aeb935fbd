"""Training on the cores of a processor: each computes its rows of every batch."""

import functools
import itertools

import keras

from training.config.options import TrainingConfig
from zoo.cores import available_cores, has_accelerator
from zoo.errors import InputError

# Below, a part of a batch is too small for a core to gain what putting the parts together costs.
_SYMBOLS = 512


def _elsewhere(settings: TrainingConfig) -> str:
    """Returns why the cores do not share batches under some settings; empty if they can."""
    if keras.backend.backend() != "tensorflow":
        return f"{keras.backend.backend()} uses the cores by itself"
    if has_accelerator():
        return "the model is trained on an accelerator"
    if settings.devices > 1:
        return f"training.devices={settings.devices}"
    return f"training.jit={settings.jit}" if settings.jit == "on" else ""


def choose_cores(settings: TrainingConfig) -> int:
    """Returns how many cores share each batch of a run.

    Args:
        settings: The settings.

    Raises:
        InputError: If there are several asked for where they cannot share.
    """
    reason = _elsewhere(settings)
    if settings.cores:
        if settings.cores > 1 and reason:
            raise InputError(f"Cores do not share batches where {reason}. Received: training.cores={settings.cores}.")
        return settings.cores
    return 1 if reason else max(1, min(available_cores(), settings.batch_tokens // _SYMBOLS))


def use_cores(count: int, available: int = 0) -> None:
    """Has TensorFlow run as many operations at a time as there are parts of a batch, each on its own cores.

    In a process that has used TensorFlow before, its threads stay as they are.

    Args:
        count: Cores that share each batch; with 1 nothing changes.
        available: Cores there are; 0 for those that the process may use.
    """
    if count < 2:
        return
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(1, (available or available_cores()) // count))
        tf.config.threading.set_inter_op_parallelism_threads(count)
    except RuntimeError:
        pass


def share_batches(model: keras.Model, metrics: list[keras.metrics.Metric], count: int) -> None:
    """Has a model's training step compute the parts of each batch at the same time, each from first to last on a core.

    TensorFlow splits one operation after the other over the cores, and most are too small for that. Loss, gradients and
    metrics are those of the whole batch; dropout draws for each part by itself.

    Args:
        model: The compiled model.
        metrics: Its metrics but for the loss, all of which add up what they see.
        count: Number of parts; a batch has at least as many rows. With 1 nothing changes.
    """
    if count > 1:
        model.train_step = functools.partial(_train_step, model, metrics, count)


def _train_step(model, metrics, count, data):
    import tensorflow as tf

    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    variables = model.trainable_variables
    (mean_loss,) = [metric for metric in model.metrics if metric.name == "loss"]
    sums, states = [each for metric in metrics for each in metric.variables], model.non_trainable_variables
    total = tf.reduce_sum(weights)

    def work(number, x, y, weights):
        """Returns gradients and loss of a part, and what it makes of metrics and states."""
        values = [
            *((each, tf.zeros_like(each.value)) for each in sums),
            *((each, _moved(each, number)) for each in states),
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
            return grads, loss, *([scope.get_current_value(each) for each in group] for group in (sums, states))

    # Traced once, for all parts. They write no variable, or TensorFlow would have each wait for the one before.
    work = tf.function(work, autograph=False)
    ends = [tf.shape(weights)[0] * number // count for number in range(count + 1)]
    found = []
    for number, (first, last) in enumerate(itertools.pairwise(ends)):
        part = keras.tree.map_structure(lambda each, rows=slice(first, last): each[rows], (x, y, weights))
        found.append(work(tf.constant(number), *part))
    grads, losses, added, behind = zip(*found, strict=True)
    model.optimizer.apply([None if part[0] is None else tf.add_n(part) for part in zip(*grads, strict=True)], variables)
    mean_loss.update_state(tf.add_n(losses))
    for variable, part in zip(sums, zip(*added, strict=True), strict=True):
        variable.assign_add(tf.add_n(part))
    for state, value in zip(states, behind[0], strict=True):
        state.assign(value)
    return model.get_metrics_result()


def _moved(state, number):
    """Returns the value of a state for a part of a batch: that of a generator is another one in each."""
    import tensorflow as tf

    if state.shape != (2,) or not keras.backend.is_int_dtype(state.dtype):
        return tf.identity(state.value)
    return state.value + tf.cast(tf.stack([number * 0x3C6EF35F, 0]), state.dtype)
