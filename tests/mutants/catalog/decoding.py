"""Planted faults: decoding."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
