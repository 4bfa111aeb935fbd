"""Faults that are brought about on purpose: how often each was tried, and how often the promise held."""
