"""Planted faults: resume."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
