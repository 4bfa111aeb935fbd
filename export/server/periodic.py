"""Something done again and again from a thread of its own."""

import threading
from collections.abc import Callable

from export.server import logs


class Every:
    """Calls `do` every few seconds until `stop`; a failure is logged and does not end it.

    Args:
        seconds: The time between two calls; 0 or less means never.
        do: What to do.
        name: The thread's name.
    """

    def __init__(self, seconds: float, do: Callable[[], None], name: str):
        self._seconds = seconds
        self._do = do
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts; the first call comes after the first wait."""
        if self._seconds > 0:
            self._thread.start()

    def stop(self) -> None:
        """Ends it after the call in progress, without waiting for that."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self._do()
            except Exception as error:
                logs.error("poll_failed", exception=error, thread=self._thread.name)
