"""Planted faults, the safety net for deleting tests: `make mutants`."""
