"""Merges defaults, recipe, file and command line into one resolved run."""
