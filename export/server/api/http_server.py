"""Waitress as it carries REST: deadlines for what clients send, a way past the queue, and an end without a hang."""

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

# Idle and slow connections cost no thread, only a place; answers that are not fetched are kept on disk.
_WAITRESS: dict[str, Any] = {
    "connection_limit": 2000,
    "backlog": 2048,
    "channel_timeout": 1 << 40,  # by the wall clock, which may jump: see `_Channel.is_slow`
    "cleanup_interval": 1,
    "channel_request_lookahead": 1,  # lets a handler see that its client has hung up
    "asyncore_use_poll": True,  # `select` fails beyond 1,024 open files
    "outbuf_high_watermark": 1 << 40,  # a slow reader of a large answer would hold its thread
    "ident": None,
}
# How long the head of a request may take to arrive, and all of it; for what has come of its body it gets more.
_HEAD_SECONDS, _REQUEST_SECONDS, _BYTES_PER_SECOND = 10, 20, 1 << 16
_IDLE_SECONDS = 60  # between two requests
_QUICK_THREADS = 2  # for what is never computed


class _Unavailable(Error):
    code, reason = 503, "Service Unavailable"


class _Request(HTTPRequestParser):
    """A request on its way in."""

    def __init__(self, adjustments: Adjustments):
        super().__init__(adjustments)
        self.begun = time.monotonic()

    def deadline(self) -> float:
        """Returns when all of it, or of its head if that is not complete, should have arrived."""
        whole = _REQUEST_SECONDS + self.body_bytes_received / _BYTES_PER_SECOND
        return float(self.begun + (whole if self.headers_finished else _HEAD_SECONDS))


class _Channel(HTTPChannel):
    parser_class = _Request

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._seen, self._quiet_since = self.last_activity, time.monotonic()

    def is_slow(self, now: float) -> bool:
        """Tells whether the client takes too long to send what it has begun, or anything at all."""
        if self.last_activity != self._seen:  # a time of the wall clock
            self._seen, self._quiet_since = self.last_activity, now
        if self.request is not None:
            return bool(now > self.request.deadline())
        limit = _HEAD_SECONDS if self.last_activity == self.creation_time else _IDLE_SECONDS
        return now > self._quiet_since + limit


class _Server(TcpWSGIServer):
    """Waitress, but slow senders are cut off, and what needs no model waits for no request that does."""

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
        """Has the next request of a connection answered, or refused once the server stops."""
        request = task.requests[0]
        if self.stopping:
            request.error = _Unavailable("The server is stopping.")
        (self._quick if request.error or request.command != "POST" else self.busy).add_task(task)

    def run(self) -> None:
        """Carries requests and answers until `end`."""
        checked = time.monotonic()
        while not self._ended:
            self.asyncore.loop(timeout=1, map=self._map, use_poll=True, count=1)
            if (now := time.monotonic()) >= checked + 1:
                checked = now
                self._close_slow(now)
        self.asyncore.close_all(self._map)

    def _close_slow(self, now: float) -> None:
        """Closes idle connections and those of slow senders; Waitress does so by the wall clock."""
        for channel in self.active_channels.values():
            if not channel.requests and channel.is_slow(now):
                channel.will_close = True

    def end(self) -> None:
        """Ends `run`, with all connections."""
        if not self._ending:
            self._ending = True
            self._quick.shutdown(timeout=1)
            self.trigger.pull_trigger(self._end)  # in the thread of `run`, which closes the trigger, too

    def _end(self) -> None:
        self._ended = True


class HttpServer:
    """The HTTP server; bound on construction, which raises ServingError, and answering after `start`."""

    def __init__(self, app: Callable[..., Any], settings: ServerSettings):
        listening = open_port(settings.host, settings.rest_api_port or 0, "--rest_api_port")
        self._server = _Server(app, listening, settings)
        self._thread = threading.Thread(target=self._server.run, name="rest", daemon=True)
        self.port = int(self._server.effective_port)

    def start(self) -> None:
        """Starts to answer."""
        self._thread.start()

    def stop(self, grace: float) -> None:
        """Refuses new requests with 503 and gives those that have been received `grace` seconds."""
        deadline = time.monotonic() + grace
        self._server.stopping = True
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._server.busy.shutdown(timeout=max(0.0, deadline - time.monotonic()))  # cancels what waits
        self._server.end()
        if self._thread.ident is None:
            self._server.run()  # which only closes

    def _is_busy(self) -> bool:
        with self._server.busy.lock:
            if self._server.busy.queue or self._server.busy.active_count:
                return True
        # The answers are complete now, but large ones may still be on their way out.
        return any(channel.total_outbufs_len for channel in list(self._server.active_channels.values()))
