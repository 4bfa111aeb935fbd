"""Serves the explorer's page and answers its requests by sending requests to the models.

By default, the server listens on the loopback address only. Pages of other sites cannot send requests: the `Host`
header must be a known name, which prevents DNS rebinding; requests are JSON, for which browsers require a CORS
permission that is never granted; and the page may load only its own files.
"""

import contextlib
import http.server
import ipaddress
import json
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import grpc

from export.client import Pending, ServerError
from export.client.answers import Outputs
from export.explore.views import MAX_TEXT_BYTES, ServedModel
from zoo.errors import InputError
from zoo.explorer.page import ASSETS, INDEX

MAX_BODY_BYTES = 8 * MAX_TEXT_BYTES  # JSON may take six bytes for a character
MAX_REQUESTS = 16  # at a time
_POLL = 0.1  # seconds between checks whether the client is still connected
_READ_TIMEOUT = 20.0  # seconds for a request to arrive
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A rejected request, with its HTTP status."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status


class ClientDisconnected(Exception):
    """The client disconnected before the response."""


class ExplorerServer(http.server.ThreadingHTTPServer):
    """The explorer's HTTP server; `serve_forever` runs it.

    Args:
        models: The served models.
        text: The initial text of the page; may be empty.
        host: The address to listen on.
        port: The port; 0 for a free one.
        allowed_hosts: Host names by which browsers may open the page, besides `localhost` and addresses.

    Raises:
        InputError: If the address cannot be used.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        models: Sequence[ServedModel],
        text: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        allowed_hosts: Sequence[str] = (),
    ):
        self.models = {model.name: model for model in models}
        self.text = text
        self.names = {"localhost", *(name.lower() for name in allowed_hosts)}
        self.free_slots = threading.BoundedSemaphore(MAX_REQUESTS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"The explorer cannot listen on {host}, port {port} ({error}).") from error

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes) else str(host)
        name = {"0.0.0.0": "localhost", "::": "localhost"}.get(name, name)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does not report connections that ended early."""

    def accepts_host(self, host: str) -> bool:
        """Returns whether a `Host` header is an allowed name of this server or an address.

        Args:
            host: The header.
        """
        name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
        if port and not port.isdecimal():
            return False
        if name.lower() in self.names:
            return True
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
        return False


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ExplorerServer
    server_version, sys_version = "explorer", ""
    timeout = _READ_TIMEOUT

    def do_GET(self) -> None:
        self._respond(self._get)

    def do_POST(self) -> None:
        self._respond(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes no log, because it would contain users' texts."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Responds with JSON instead of a page that repeats the request."""
        self._send(HTTPStatus(code), "application/json", _json({"error": message or HTTPStatus(code).phrase}))

    def _respond(self, answer: Callable[[], tuple[str, bytes]]) -> None:
        self.close_connection = True
        try:
            self._check_origin()
            if not self.server.free_slots.acquire(blocking=False):
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "Too many concurrent requests. Try again in a moment.")
            try:
                kind, body = answer()
            finally:
                self.server.free_slots.release()
            status = HTTPStatus.OK
        except (ClientDisconnected, ConnectionError, TimeoutError):
            return
        except Exception as error:
            status, message = _status_and_message(error)
            kind, body = "application/json", _json({"error": message})
        with contextlib.suppress(OSError):
            self._send(status, kind, body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _check_origin(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self.server.accepts_host(hosts[0]):
            message = f"The host {', '.join(hosts) or '(none)'} is not allowed: see --allowed_host."
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, message)
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site", "none")
        is_own = origin in (None, f"http://{hosts[0]}", f"https://{hosts[0]}") and site in ("same-origin", "none")
        if self.path.startswith("/api/") and not is_own:
            raise Refused(HTTPStatus.FORBIDDEN, "Only the explorer's own page may send requests.")

    def _get(self) -> tuple[str, bytes]:
        path = self.path.partition("?")[0]
        if path == "/api/models":
            return "application/json", _json({"models": list(self.server.models), "text": self.server.text})
        file = {f"/{file.name}": file for file in ASSETS.iterdir()}.get(f"/{INDEX}" if path == "/" else path)
        if file is None or file.suffix not in _TYPES:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")
        return _TYPES[file.suffix], file.read_bytes()

    def _post(self) -> tuple[str, bytes]:
        methods = {"/api/view": self._view, "/api/answer": self._answer, "/api/layer": self._layer}
        if self.path not in methods:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such request.")
        request = self._request()
        return "application/json", _json(methods[self.path](self._model(request), request))

    def _request(self) -> Mapping[str, Any]:
        """Returns the body, a JSON object."""
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "A request must be application/json.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 12:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "A request must have a Content-Length.")
        if int(length) > MAX_BODY_BYTES:
            message = f"The text is too long: the request has {int(length):,} bytes, of {MAX_BODY_BYTES:,} at most."
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        try:
            request = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "A request must be a JSON object.") from None
        if not isinstance(request, dict) or not isinstance(request.get("text"), str):
            raise Refused(HTTPStatus.BAD_REQUEST, "A request must be a JSON object with a `text`.")
        return request

    def _model(self, request: Mapping[str, Any]) -> ServedModel:
        name = request.get("model")
        if not isinstance(name, str) or name not in self.server.models:
            message = f"`model` must be one of {', '.join(self.server.models)}. Received: {name!r}."
            raise Refused(HTTPStatus.NOT_FOUND, message)
        return self.server.models[name]

    def _view(self, model: ServedModel, request: Mapping[str, Any]) -> Any:
        return model.view(_text(request), self._wait).to_json()

    def _answer(self, model: ServedModel, request: Mapping[str, Any]) -> Any:
        return model.answer(_text(request), _whole(request, "hypothesis"), self._wait).to_json()

    def _layer(self, model: ServedModel, request: Mapping[str, Any]) -> Any:
        return model.layer(_text(request), _whole(request, "hypothesis"), _whole(request, "layer") or 0, self._wait)

    def _wait(self, pending: Pending) -> Outputs:
        """Waits for a model's response, and cancels the request when the browser disconnects."""
        while True:
            with contextlib.suppress(TimeoutError):
                return pending.result(_POLL)
            if select.select([self.connection], [], [], 0)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                pending.cancel()
                raise ClientDisconnected


def _text(request: Mapping[str, Any]) -> str:
    # Lone surrogates, which JSON can contain, cannot be encoded.
    return str(request["text"]).encode("utf-8", "replace").decode("utf-8")


def _whole(request: Mapping[str, Any], name: str) -> int | None:
    value = request.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31):
        raise Refused(HTTPStatus.BAD_REQUEST, f"`{name}` must be an integer of 0 or more. Received: {value!r}.")
    return value


_STATUSES = {
    grpc.StatusCode.UNAVAILABLE: HTTPStatus.BAD_GATEWAY,
    grpc.StatusCode.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
    grpc.StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
}


def _status_and_message(error: Exception) -> tuple[HTTPStatus, str]:
    """Returns the HTTP status and the message for an error."""
    if isinstance(error, Refused):
        return error.status, str(error)
    if isinstance(error, ServerError):
        message = str(error)
        if error.code == grpc.StatusCode.NOT_FOUND:
            message += ". Is it served under this name, and loaded?"
        if error.code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            message += " The text may be too long for this server, or the server may be overloaded."
        return _STATUSES.get(error.code, HTTPStatus.BAD_GATEWAY), message
    if isinstance(error, InputError):
        return HTTPStatus.UNPROCESSABLE_ENTITY, str(error)
    return HTTPStatus.INTERNAL_SERVER_ERROR, f"The explorer failed: {type(error).__name__}: {error}"


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
