"""Planted faults: data."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
