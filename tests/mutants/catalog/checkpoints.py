"""Planted faults: checkpoints."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
