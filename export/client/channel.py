"""How the client reaches a server: address, encryption, retries."""

import dataclasses
import json
import re
import ssl
from pathlib import Path
from typing import Any

import grpc

from zoo.errors import InputError

MAX_RETRIES = 4  # gRPC's own limit is five attempts in all
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 3.0  # seconds between attempts; each wait is twice the one before
_PING_AFTER, _PING_TIMEOUT = 10.0, 5.0  # seconds without a word from the server, and for the answer to a ping

_ADDRESS = re.compile(r"(.+):([0-9]{1,5})")
_LAST_PORT = 65535
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
_LARGEST_REPEATED_REQUEST = 64 << 20  # bytes; gRPC keeps a request of up to 256 KiB for a retry unless told


@dataclasses.dataclass(frozen=True)
class Tls:
    """Encryption of the connection, and who proves what to whom.

    Attributes:
        ca: PEM file of the authorities that vouch for the server; `None` means those that gRPC brings.
        certificate: PEM file of the client's certificate chain, for a server that asks for one.
        key: PEM file of the client's private key; goes with `certificate`.
        server_name: The name in the server's certificate, where that is another than the host asked.
    """

    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InputError(
                "A client's certificate and its private key go together. "
                f"Received: certificate={self.certificate}, key={self.key}."
            )


def open_channel(server: str, tls: Tls | None = None, retries: int = MAX_RETRIES) -> grpc.Channel:
    """Returns a channel to a server, see `Client`; nothing is sent yet.

    The server may also be given as `dns:///HOST:PORT`; if the host has several addresses, they take turns. Without a
    name, `ipv4:HOST:PORT,HOST:PORT` lists them. With retries, what was sent to one that hangs is sent to another.

    Raises:
        InputError: `server` is not an address, `retries` is out of range, or a PEM file cannot be read, is not one or
            does not fit the other.
    """
    match = _ADDRESS.fullmatch(server)
    if match is None or not 1 <= int(match[2]) <= _LAST_PORT:
        raise InputError(
            f"A server is given as HOST:PORT, such as localhost:8500, with a port of 1 to {_LAST_PORT}. "
            f"Received: {server!r}"
        )
    if not 0 <= retries <= MAX_RETRIES:
        raise InputError(f"A request is sent again 0 to {MAX_RETRIES} times. Received: retries={retries}")
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        *_service_options(retries),
    ]
    if match[1] in _LOOPBACK:
        options.append(("grpc.enable_http_proxy", 0))  # a proxy's localhost is another one
    if tls is None:
        return grpc.insecure_channel(server, options=options)
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    credentials = grpc.ssl_channel_credentials(_read_certificates(tls.ca), *_read_pair(tls))
    return grpc.secure_channel(server, credentials, options=options)


def _service_options(retries: int) -> list[tuple[str, int | str]]:
    """Returns the channel options that spread requests over the server's addresses and send some of them again.

    A server that stops or starts is UNAVAILABLE for a while; gRPC itself sends the request again.

    Reference: gRPC proposal A6, "Client Retries", section "Retry Policy".
    """
    balancing: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if not retries:
        return [("grpc.enable_retries", 0), ("grpc.service_config", json.dumps(balancing))]
    policy = {
        "maxAttempts": retries + 1,
        "initialBackoff": f"{_FIRST_WAIT}s",
        "maxBackoff": f"{_LONGEST_WAIT}s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = {**balancing, "methodConfig": [{"name": [{}], "retryPolicy": policy}]}
    return [
        ("grpc.service_config", json.dumps(config)),
        ("grpc.per_rpc_retry_buffer_size", _LARGEST_REPEATED_REQUEST),
        # A server that hangs holds its connection open; one that answers no ping counts as UNAVAILABLE. The second
        # timeout, a minute unless told, is that of pings that gRPC sends to measure the connection.
        ("grpc.keepalive_time_ms", int(1000 * _PING_AFTER)),
        ("grpc.keepalive_timeout_ms", int(1000 * _PING_TIMEOUT)),
        ("grpc.http2.ping_timeout_ms", int(1000 * _PING_TIMEOUT)),
        # The connection has its own waits; if they were longer than the request's, attempts would be pointless.
        ("grpc.initial_reconnect_backoff_ms", int(500 * _FIRST_WAIT)),
        ("grpc.max_reconnect_backoff_ms", int(1000 * _LONGEST_WAIT)),
    ]


def _read_certificates(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    data = _read(path)
    try:  # gRPC itself would only say, with the first request, that no server answers.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"{path} holds no certificate in PEM form.") from error
    return data


def _read_pair(tls: Tls) -> tuple[bytes | None, bytes | None]:
    """Returns the client's private key and its certificates, `None` each without them."""
    if tls.key is None or tls.certificate is None:
        return None, None
    key, certificates = _read(tls.key), _read_certificates(tls.certificate)
    if b" PRIVATE KEY-----" not in key:
        raise InputError(f"{tls.key} holds no private key in PEM form.")
    try:  # For the same reason. An empty password is given, because OpenSSL would ask the terminal for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(tls.certificate, tls.key, password="")
    except ssl.SSLError as error:
        why = "it belongs to another" if error.reason == "KEY_VALUES_MISMATCH" else "it is broken or has a password"
        raise InputError(f"The private key {tls.key} does not fit the certificate {tls.certificate}: {why}.") from error
    return key, certificates


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
