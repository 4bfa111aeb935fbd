"""Planted faults: server."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = []
