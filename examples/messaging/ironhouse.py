"""A server that only clients with known keys can reach: CURVE, certificates, and an authenticator in a thread.

What is sent is encrypted; a client knows by the server's public key that it talks to that server, and the server knows
by their public keys who its clients are.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import ropewalk.zmq as zmq
from ropewalk.zmq.auth import create_certificates, load_certificate
from ropewalk.zmq.auth.thread import ThreadAuthenticator


def connect(
    context: zmq.Context[zmq.Socket[bytes]], address: bytes, own: Path, server_key: bytes
) -> zmq.Socket[bytes]:
    """A client's socket with its own certificate."""
    socket = context.socket(zmq.REQ)
    socket.curve_publickey, socket.curve_secretkey = load_certificate(own)
    socket.curve_serverkey = server_key
    socket.connect(address)
    return socket


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        known, secret = Path(folder, "known"), Path(folder, "secret")
        known.mkdir()
        secret.mkdir(0o700)
        for name in ("server", "ada", "eve"):
            create_certificates(secret, name)
        # The server knows one client's key.
        (secret / "ada.key").rename(known / "ada.key")

        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        authenticator.allow("127.0.0.1")
        authenticator.configure_curve(domain="house", location=known)

        with context.socket(zmq.REP) as server:
            server_key, server.curve_secretkey = load_certificate(secret / "server.key_secret")
            server.curve_publickey = server_key
            server.curve_server = True
            server.zap_domain = b"house"
            server.bind("tcp://127.0.0.1:*")
            for name in ("ada", "eve"):
                own = secret / f"{name}.key_secret"
                with connect(context, server.last_endpoint, own, server_key) as client:
                    client.linger = 0
                    client.send_string(f"{name} was here")
                    if server.poll(10_000 if name == "ada" else 300):
                        server.send_string(f"{server.recv_string()}: welcome")
                        print(client.recv_string())
                    else:
                        print(f"{name} does not come in")
        authenticator.stop()


if __name__ == "__main__":
    main()
