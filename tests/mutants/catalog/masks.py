"""Planted faults: masks."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
