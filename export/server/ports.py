"""Ports opened with an error that names the flag."""

import socket

from zoo.errors import InputError


def open_port(host: str, port: int, flag: str) -> socket.socket:
    """Returns a listening socket.

    Args:
        host: The address to listen on.
        port: The port; 0 picks a free one.
        flag: The flag that gave the port.

    Raises:
        InputError: The port cannot be had.
    """
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise InputError(f"{flag} {port} cannot be listened on ({error.strerror}).") from error
