"""Planted faults: softmax."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "a row without any key keeps uniform weights",
        "zoo/layers/attention/masks.py",
        "return ops.cast(ops.where(mask, weights, ops.cast(0.0, wide)), dtype)",
        "return ops.cast(weights, dtype)",
        ("tests/zoo/layers/attention/test_masks.py",),
    ),
]
