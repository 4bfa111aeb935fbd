"""The start of the commands that decode."""

from zoo.startup import start_backend, without_onednn


def start_decoding() -> None:
    """Starts the backend for a command that spends its time on decoding, of several batches side by side."""
    without_onednn()
    start_backend()
    from training.hardware.cores import use_cores
    from zoo.cores import computing_cores

    use_cores(computing_cores())
