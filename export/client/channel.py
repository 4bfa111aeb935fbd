"""The client's connection to a server: address, encryption, retries."""

import dataclasses
import json
import re
import ssl
from pathlib import Path
from typing import Any

import grpc

from zoo.errors import InputError

MAX_RETRIES = 4  # gRPC's own limit is five attempts in total
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 3.0  # seconds between attempts; each wait is twice as long as the previous one
_PING_AFTER, _PING_TIMEOUT = 10.0, 5.0  # seconds without data from the server, and for the response to a ping

_ADDRESS = re.compile(r"(.+):([0-9]{1,5})")
_LAST_PORT = 65535
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
_LARGEST_REPEATED_REQUEST = 64 << 20  # bytes; by default gRPC retries only requests of up to 256 KiB


@dataclasses.dataclass(frozen=True)
class Tls:
    """Encryption of the connection, and the certificates of server and client.

    Attributes:
        ca: PEM file of the authorities that certify the server; `None` means those included in gRPC.
        certificate: PEM file of the client's certificate chain, for a server that requires one.
        key: PEM file of the client's private key; requires `certificate`.
        server_name: The name in the server's certificate, if it differs from the host.
    """

    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InputError(
                f"`certificate` and `key` require each other. Received: certificate={self.certificate}, key={self.key}."
            )


def open_channel(server: str, tls: Tls | None = None, retries: int = MAX_RETRIES) -> grpc.Channel:
    """Returns a channel to a server, see `Client`; nothing is sent yet.

    `server` can also be `dns:///HOST:PORT`, which distributes the requests over all addresses of the host, or a list,
    `ipv4:HOST:PORT,HOST:PORT`. With retries, a request to an address that hangs is sent to another one.

    Raises:
        InputError: `server` is not an address, `retries` is out of range, or a PEM file cannot be read, is invalid or
            does not match the other.
    """
    match = _ADDRESS.fullmatch(server)
    if match is None or not 1 <= int(match[2]) <= _LAST_PORT:
        raise InputError(
            f"`server` must be HOST:PORT, such as localhost:8500, with a port of 1 to {_LAST_PORT}. "
            f"Received: {server!r}"
        )
    if not 0 <= retries <= MAX_RETRIES:
        raise InputError(f"`retries` must be 0 to {MAX_RETRIES}. Received: retries={retries}")
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        *_service_options(retries),
    ]
    if match[1] in _LOOPBACK:
        options.append(("grpc.enable_http_proxy", 0))  # a proxy would resolve localhost to itself
    if tls is None:
        return grpc.insecure_channel(server, options=options)
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    credentials = grpc.ssl_channel_credentials(_read_certificates(tls.ca), *_read_pair(tls))
    return grpc.secure_channel(server, credentials, options=options)


def _service_options(retries: int) -> list[tuple[str, int | str]]:
    """Returns the channel options for load balancing over the server's addresses and for retries.

    A server that stops or starts is UNAVAILABLE for a while; gRPC itself repeats the request.

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
        # A server that hangs keeps its connection open; if it does not respond to pings, it counts as UNAVAILABLE. The
        # second timeout, by default a minute, is for the pings by which gRPC measures the connection.
        ("grpc.keepalive_time_ms", int(1000 * _PING_AFTER)),
        ("grpc.keepalive_timeout_ms", int(1000 * _PING_TIMEOUT)),
        ("grpc.http2.ping_timeout_ms", int(1000 * _PING_TIMEOUT)),
        # The backoff of the connection must not be longer than that of the request, or retries would have no effect.
        ("grpc.initial_reconnect_backoff_ms", int(500 * _FIRST_WAIT)),
        ("grpc.max_reconnect_backoff_ms", int(1000 * _LONGEST_WAIT)),
    ]


def _read_certificates(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    data = _read(path)
    try:  # gRPC itself would only report, at the first request, that the server is unavailable
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"{path} contains no certificate in PEM format.") from error
    return data


def _read_pair(tls: Tls) -> tuple[bytes | None, bytes | None]:
    """Returns the client's private key and its certificates, or `None` for both."""
    if tls.key is None or tls.certificate is None:
        return None, None
    key, certificates = _read(tls.key), _read_certificates(tls.certificate)
    if b" PRIVATE KEY-----" not in key:
        raise InputError(f"{tls.key} contains no private key in PEM format.")
    try:  # for the same reason; without `password`, OpenSSL would prompt for one
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(tls.certificate, tls.key, password="")
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        reason = "it belongs to another certificate" if mismatch else "it is damaged or has a password"
        raise InputError(
            f"The private key {tls.key} does not match the certificate {tls.certificate}: {reason}."
        ) from error
    return key, certificates


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
