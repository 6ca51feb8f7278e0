"""Authentication of peers: a handler of ZAP requests, and certificates for CURVE.

`Authenticator` decides; `auth.thread.ThreadAuthenticator` runs one in a thread, `auth.asyncio.AsyncioAuthenticator` in
the running loop.

Source: ZeroMQ RFC 27 (ZAP), https://rfc.zeromq.org/spec/27/
"""

from ropewalk.zmq.auth.base import CURVE_ALLOW_ANY as CURVE_ALLOW_ANY, Authenticator as Authenticator
from ropewalk.zmq.auth.certs import (
    create_certificates as create_certificates,
    load_certificate as load_certificate,
    load_certificates as load_certificates,
)

__all__ = [
    "CURVE_ALLOW_ANY",
    "Authenticator",
    "create_certificates",
    "load_certificate",
    "load_certificates",
]
