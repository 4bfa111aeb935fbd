"""Waitress configured for REST: timeouts for slow clients, a second queue for quick requests, and a clean stop."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher
from waitress.utilities import Error

from export.server.api.grpc_server import open_port
from export.server.settings import ServerSettings

# Idle and slow connections use no thread; large responses are buffered on disk until the client reads them.
_WAITRESS: dict[str, Any] = {
    "connection_limit": 2000,
    "backlog": 2048,
    "channel_timeout": 1 << 40,  # disabled, because it uses the wall clock, which may jump; see `_Channel.is_slow`
    "cleanup_interval": 1,
    "channel_request_lookahead": 1,  # lets a handler detect that its client has disconnected
    "asyncore_use_poll": True,  # `select` fails beyond 1,024 open files
    "outbuf_high_watermark": 1 << 40,  # no limit, which would block the thread of a slow client's large response
    "ident": None,
}
# Timeouts for receiving the head of a request and the whole request; the latter grows with the bytes received.
_HEAD_SECONDS, _REQUEST_SECONDS, _BYTES_PER_SECOND = 10, 20, 1 << 16
_IDLE_SECONDS = 60  # between two requests
_QUICK_THREADS = 2  # for requests that run no model


class _Unavailable(Error):
    code, reason = 503, "Service Unavailable"


class _Request(HTTPRequestParser):
    """A request that is being received."""

    def __init__(self, adjustments: Adjustments):
        super().__init__(adjustments)
        self.start_time = time.monotonic()

    def deadline(self) -> float:
        """Returns the time by which the request, or its head while that is incomplete, must have arrived."""
        seconds = _REQUEST_SECONDS + self.body_bytes_received / _BYTES_PER_SECOND
        return float(self.start_time + (seconds if self.headers_finished else _HEAD_SECONDS))


class _Channel(HTTPChannel):
    parser_class = _Request

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._last_seen_activity, self._quiet_since = self.last_activity, time.monotonic()

    def is_slow(self, now: float) -> bool:
        """Returns whether the client takes too long to complete a request or to send a new one."""
        if self.last_activity != self._last_seen_activity:  # a time of the wall clock
            self._last_seen_activity, self._quiet_since = self.last_activity, now
        if self.request is not None:
            return bool(now > self.request.deadline())
        limit = _HEAD_SECONDS if self.last_activity == self.creation_time else _IDLE_SECONDS
        return now > self._quiet_since + limit


class _Server(TcpWSGIServer):
    """Waitress that disconnects slow clients, and has separate threads for requests that run no model."""

    channel_class = _Channel

    def __init__(self, app: Callable[..., Any], listening: socket.socket, settings: ServerSettings):
        adjustments = Adjustments(max_request_body_size=settings.max_request_bytes, **_WAITRESS)
        address = (listening.family, listening.type, listening.proto, listening.getsockname())
        self.stopping = self._ending = self._ended = False
        self.busy, self._quick = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        self.busy.set_thread_count(settings.rest_api_num_threads)
        self._quick.set_thread_count(_QUICK_THREADS)
        super().__init__(
            app, {}, True, listening, dispatcher=self.busy, adj=adjustments, sockinfo=address, bind_socket=False
        )

    def add_task(self, task: _Channel) -> None:
        """Queues the next request of a connection; rejects it if the server is stopping."""
        request = task.requests[0]
        if self.stopping:
            request.error = _Unavailable("The server is stopping.")
        (self._quick if request.error or request.command != "POST" else self.busy).add_task(task)

    def run(self) -> None:
        """Receives requests and sends responses until `end` is called."""
        checked = time.monotonic()
        while not self._ended:
            self.asyncore.loop(timeout=1, map=self._map, use_poll=True, count=1)
            if (now := time.monotonic()) >= checked + 1:
                checked = now
                self._close_slow(now)
        self.asyncore.close_all(self._map)

    def _close_slow(self, now: float) -> None:
        """Closes connections of idle and slow clients, by the monotonic clock."""
        for channel in self.active_channels.values():
            if not channel.requests and channel.is_slow(now):
                channel.will_close = True

    def end(self) -> None:
        """Stops `run` and closes all connections."""
        if not self._ending:
            self._ending = True
            self._quick.shutdown(timeout=1)
            self.trigger.pull_trigger(self._end)  # in the thread of `run`, which closes the trigger, too

    def _end(self) -> None:
        self._ended = True


class HttpServer:
    """The HTTP server; the constructor binds the port and may raise ServingError, `start` accepts requests."""

    def __init__(self, app: Callable[..., Any], settings: ServerSettings):
        listening = open_port(settings.host, settings.rest_api_port or 0, "--rest_api_port")
        self._server = _Server(app, listening, settings)
        self._thread = threading.Thread(target=self._server.run, name="rest", daemon=True)
        self.port = int(self._server.effective_port)

    def start(self) -> None:
        """Accepts requests."""
        self._thread.start()

    def stop(self, grace: float) -> None:
        """Rejects new requests with 503 and waits `grace` seconds for those that have been received."""
        deadline = time.monotonic() + grace
        self._server.stopping = True
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._server.busy.shutdown(timeout=max(0.0, deadline - time.monotonic()))  # cancels waiting requests
        self._server.end()
        if self._thread.ident is None:
            self._server.run()  # only closes the sockets

    def _is_busy(self) -> bool:
        with self._server.busy.lock:
            if self._server.busy.queue or self._server.busy.active_count:
                return True
        # All responses are computed, but large ones may not be sent completely.
        return any(channel.total_outbufs_len for channel in list(self._server.active_channels.values()))
