"""The runner of all measurements: command line, cases, contestants in processes, storage and reports."""
