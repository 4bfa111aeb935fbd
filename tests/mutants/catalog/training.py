"""Planted faults: training."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "the gradient of smoothed labels takes too much from the symbol itself",
        "training/optimization/cross_entropy.py",
        "own = 1.0 - label_smoothing + others",
        "own = 1.0 - label_smoothing",
        ("tests/training/optimization/test_cross_entropy.py",),
    ),
    Mutant(
        "the loss is a mean over padding as well",
        "training/optimization/cross_entropy.py",
        'reduction="mean_with_sample_weight"',
        'reduction="sum_over_batch_size"',
        ("tests/training/optimization/test_cross_entropy.py",),
    ),
    Mutant(
        "the loss is computed in the precision of the logits",
        "training/optimization/cross_entropy.py",
        'ops.reshape(ops.cast(logits, "float32"), (-1, size))',
        "ops.reshape(logits, (-1, size))",
        ("tests/training/optimization/test_cross_entropy.py",),
    ),
    Mutant(
        "the warm-up begins at zero",
        "training/optimization/schedules.py",
        '"float32") + 1.0',
        '"float32")',
        ("tests/training/optimization/test_schedules.py",),
    ),
    Mutant(
        "accumulated batches count alike, whatever their symbols",
        "training/optimization/optimizer.py",
        "grads = [grad if grad is None else grad * keras.ops.cast(symbols, grad.dtype) for grad in grads]",
        "symbols = 1.0",
        ("tests/training/optimization/test_optimizer.py",),
    ),
    Mutant(
        "each weight is clipped by its own norm",
        "training/optimization/optimizer.py",
        '"global_clipnorm": settings',
        '"clipnorm": settings',
        ("tests/training/optimization/test_optimizer.py",),
    ),
    Mutant(
        "the moving average forgets faster where batches are accumulated",
        "training/optimization/optimizer.py",
        "settings.ema ** (1 / settings.accumulate_steps)",
        "settings.ema",
        ("tests/training/optimization/test_optimizer.py",),
    ),
    Mutant(
        "R-Drop's divergence has twice its weight",
        "training/optimization/consistency.py",
        "0.25 * alpha * divergence",
        "0.5 * alpha * divergence",
        ("tests/training/optimization/test_consistency.py::test_losses_by_their_formulas",),
    ),
    Mutant(
        "guided alignment teaches the first layer",
        "training/optimization/guided_alignment.py",
        'kept.__dict__.pop("attention")[:, -1]',
        'kept.__dict__.pop("attention")[:, 0]',
        ("tests/training/optimization/test_guided_alignment.py",),
    ),
    Mutant(
        "corrections of low rank are lost when a model is kept",
        "training/optimization/fine_tuning.py",
        "source.save_own_variables(values)",
        "source.lora_enabled = False\n        source.save_own_variables(values)",
        ("tests/training/optimization/test_fine_tuning.py::test_merged_corrections_answer_alike[causal_lm_tiny]",),
    ),
    Mutant(
        "the loss is not scaled in float16 where cores share batches",
        "training/hardware/cores.py",
        "scaled = model.optimizer.scale_loss(loss)",
        "scaled = loss",
        ("tests/training/hardware/test_cores.py::test_the_loss_is_scaled_as_the_optimizer_asks_for",),
    ),
    Mutant(
        "all cores draw the same dropout",
        "training/hardware/cores.py",
        "tf.stack([number * 0x3C6EF35F, 0])",
        "tf.stack([number * 0, 0])",
        ("tests/training/hardware/test_cores.py::test_each_part_of_each_step_has_a_dropout_of_its_own",),
    ),
    Mutant(
        "twins of R-Drop are separated by cores",
        "training/hardware/cores.py",
        "tf.shape(weights)[0] // together * number // count * together",
        "tf.shape(weights)[0] * number // count",
        ("tests/training/hardware/test_cores.py::test_twins_stay_in_one_part",),
    ),
    Mutant(
        "the next step draws the dropout of this one where activations are computed again",
        "training/optimization/rematerialization.py",
        "            each.generator.state.assign(each.seed_after(each.drawn))\n",
        "            pass\n",
        ("tests/training/optimization/test_rematerialization.py",),
    ),
]
