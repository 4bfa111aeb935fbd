"""Planted faults: training."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
