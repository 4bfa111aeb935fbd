"""Measurements beside other libraries; never packaged.

A command (`attention`, `training`, `decoding`, …) declares cases: contestants that work on one task (`runner.case`).
`runner.measure` starts each contestant in a process (`runner.process`), in an environment of its own if it needs one
(`runner.environments`), in which `runner.worker` calls an adapter (`zoo_adapter`, `peers`); the contestants then take
turns. `runner.command` stores the results (`runner.store`) and prints them (`runner.report`). `python -m
benchmarks.results add` appends rows to `results/*.csv`, from which the pages are written.

`parity`, `conformance`, `faults`, `serving` and `gpu` share command line, processes and reports, and measure their own
subjects.
"""
