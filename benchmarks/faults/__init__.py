"""Fault injection: how often each fault was tried, and how often the promise held."""
