"""Planted faults: export."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
