"""Planted faults: tokenizers."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
