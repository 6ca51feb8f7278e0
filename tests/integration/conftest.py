"""Fixtures for the tests of the loop with other libraries."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

import pytest


class Contexts(NamedTuple):
    """Both ends of a TLS connection to 127.0.0.1 or localhost."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    chain: Path  # The server's key and certificate, for those who make a context by themselves.


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """A server's context with a certificate, and a client's that trusts it and nothing else."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.configure_cert(server)
    chain = tmp_path_factory.mktemp("tls") / "chain.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(chain)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(client)
    return Contexts(server, client, chain)
