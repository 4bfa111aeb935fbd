"""The client of a served model, as a command and in Python, also for the stock server, and without TensorFlow.

Command: `python -m export.client --server HOST:PORT --model NAME [TEXT ...]`.

Example:
    with Client("localhost:8500", model="en-de") as client:
        print(client.translate(["A man rides a horse."]))
"""

from export.client.answers import Alignment, Classification
from export.client.api import Client, Pending, Signature
from export.client.channel import Tls
from export.client.cli import command, main
from export.client.errors import RequestRefused, ServerError
from export.client.flags import add_connection_flags, report_failure, tls_of
from export.client.text_input import read_texts

__all__ = [
    "Alignment",
    "Classification",
    "Client",
    "Pending",
    "RequestRefused",
    "ServerError",
    "Signature",
    "Tls",
    "add_connection_flags",
    "command",
    "main",
    "read_texts",
    "report_failure",
    "tls_of",
]
