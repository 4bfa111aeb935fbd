"""Measurements beside other libraries; never packaged.

A command (`attention`, `training`, `decoding`, …) declares cases: contestants that work on one task (`case`). `measure`
starts each contestant in a process (`process`), in an environment of its own if it needs one (`environments`), in which
`worker` calls an adapter (`zoo_adapter`, `peers`); the contestants then take turns. `command` stores the results
(`store`) and prints them (`report`). `python -m benchmarks.results add` appends rows to `results/*.csv`, from which the
pages are written.
"""
