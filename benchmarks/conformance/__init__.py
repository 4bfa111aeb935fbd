"""Who keeps the attention contract: Keras, KerasHub and this project, check by check.

`python -m benchmarks.conformance [--layer PATTERN] [--check PATTERN] [--output FILE]` prints the table as Markdown.
"""
