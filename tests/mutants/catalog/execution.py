"""Planted faults: execution."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
