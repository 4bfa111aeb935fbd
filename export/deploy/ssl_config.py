"""Writes the stock server's `--ssl_config_file` from PEM files.

`python export/deploy/ssl_config.py --key server.key --cert server.pem [--client_ca ca.pem] --output ssl_config.txt`

It requires only Python, so that it runs on the machine with the certificates. The stock server is that of
TensorFlow Serving.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path


def ssl_config(key: str, certificate: str, client_authority: str | None = None) -> str:
    """Returns an SSLConfig in text format, from PEM texts; with `client_authority`, clients must have a certificate."""
    # The text format quotes ASCII strings, such as PEM, as JSON does.
    lines = [f"server_key: {json.dumps(key)}", f"server_cert: {json.dumps(certificate)}"]
    if client_authority is not None:
        lines += [f"custom_ca: {json.dumps(client_authority)}", "client_verify: true"]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; the file is readable only by its owner, because it contains the key."""
    parser = argparse.ArgumentParser(description="Writes the stock server's --ssl_config_file from PEM files.")
    parser.add_argument("--key", required=True, metavar="FILE", help="the server's private key")
    parser.add_argument("--cert", required=True, metavar="FILE", help="the server's certificate chain")
    parser.add_argument("--client_ca", metavar="FILE", help="the authority of the clients' certificates (mutual TLS)")
    parser.add_argument("--output", required=True, metavar="FILE")
    flags = parser.parse_args(argv)
    try:
        paths = [flags.key, flags.cert, *filter(None, [flags.client_ca])]
        text = ssl_config(*(Path(path).read_text(encoding="ascii") for path in paths))
        descriptor = os.open(flags.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, 0o600)
            file.write(text)
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    except UnicodeDecodeError:
        parser.error("a PEM file is expected, which is ASCII text")


if __name__ == "__main__":
    main()
