"""Structured logs: one JSON object per line and event on standard error.

They contain users' texts only with `--log_contents`.
"""

import json
import logging
import sys
import time
import traceback
from typing import Any

_LOGGER = logging.getLogger("export.server")
_REQUESTS = _LOGGER.getChild("requests")
_REQUESTS.setLevel(logging.INFO)  # independent of `--log_level`, because requests have their own flag


class _JsonFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format, default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": self.formatTime(record), "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def write_to_stderr(level: str) -> None:
    """Logs events of `level` (such as `"info"`) and above, and warnings of libraries, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    for logger in (_LOGGER, logging.getLogger()):
        logger.handlers = [handler]
    _LOGGER.propagate = False
    _LOGGER.setLevel(level.upper())
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # which warns of every request that waits for a thread


def info(event: str, **fields: Any) -> None:
    """Logs a normal event."""
    _LOGGER.info(event, extra={"fields": fields})


def error(event: str, exception: BaseException | None = None, **fields: Any) -> None:
    """Logs an event that needs attention, with the traceback of an exception, if any."""
    _LOGGER.error(event, exc_info=exception, extra={"fields": fields})


def request(**fields: Any) -> None:
    """Logs one request, regardless of the level."""
    _REQUESTS.info("request", extra={"fields": fields})


def request_broke(exception: Exception) -> None:
    """Logs where an unexpected exception was raised, without its message, which may quote the request."""
    frames = traceback.format_tb(exception.__traceback__)
    error("request_broke", kind=type(exception).__name__, where=frames[-1].strip())
