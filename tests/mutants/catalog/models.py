"""Planted faults: models."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
