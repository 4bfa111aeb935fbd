"""Starts the backend for commands that decode."""

from zoo.runtime.startup import start_backend, without_onednn


def start_decoding() -> None:
    """Starts the backend for a command that mostly decodes, several batches in parallel."""
    without_onednn()
    start_backend()
    from training.hardware.cores import use_cores
    from zoo.runtime.cores import computing_cores

    use_cores(computing_cores())
