"""The connection flags and the error reports that all client commands share."""

import sys
from argparse import Namespace
from collections.abc import Sequence

from export.client.channel import MAX_RETRIES, Tls
from export.client.errors import ServerError
from zoo.runtime.cli import ArgumentParser, Command, run_command


def add_connection_flags(parser: ArgumentParser) -> None:
    """Adds the flags for the timeout, retries and encryption.

    Args:
        parser: The command's parser.
    """
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for a response (default 60)")
    retries = f"how often to retry if the server is unavailable, 0 to {MAX_RETRIES} (default {MAX_RETRIES})"
    parser.add_argument("--retries", type=int, default=MAX_RETRIES, help=retries)
    parser.add_argument("--tls", action="store_true", help="encrypt the connection; implied by the other --tls flags")
    parser.add_argument("--tls_ca", metavar="FILE", help="PEM file of the authorities that certify the server")
    parser.add_argument("--tls_cert", metavar="FILE", help="PEM file of the client's certificate (mutual TLS)")
    parser.add_argument("--tls_key", metavar="FILE", help="PEM file of the client's private key (mutual TLS)")
    parser.add_argument("--tls_server_name", metavar="NAME", help="the name in the server's certificate")


def tls_of(flags: Namespace) -> Tls | None:
    """Returns the encryption settings of the flags; `None` means no encryption.

    Args:
        flags: The parsed flags of `add_connection_flags`.
    """
    settings = (flags.tls_ca, flags.tls_cert, flags.tls_key, flags.tls_server_name)
    return Tls(*settings) if flags.tls or any(settings) else None


def report_failure(main: Command, argv: Sequence[str] | None = None) -> int:
    """Runs a command as `run_command` does; if the server fails, prints one line and returns the exit status 1.

    Args:
        main: The command.
        argv: See `run_command`.
    """
    try:
        return run_command(main, argv)
    except ServerError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return 1
