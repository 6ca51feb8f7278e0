"""A certificate for `localhost`, made by the program openssl."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def contexts(folder: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's, with a key of the curve P-256 that lies in the folder."""
    key, certificate = Path(folder) / "key.pem", Path(folder) / "certificate.pem"
    if not certificate.exists():
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-nodes", "-subj", "/CN=localhost"),
                *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-addext", "subjectAltName=DNS:localhost"),
                *("-keyout", str(key), "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(certificate)
    return server, client
