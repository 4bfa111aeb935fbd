"""Planted faults: caches."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
