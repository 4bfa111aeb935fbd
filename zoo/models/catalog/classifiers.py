"""Classifiers of text."""
