"""Checks of the attention contract for layers of Keras, KerasHub and this library.

`python -m benchmarks.conformance [--layer PATTERN] [--check PATTERN] [--output FILE]` prints the table as Markdown.
"""
