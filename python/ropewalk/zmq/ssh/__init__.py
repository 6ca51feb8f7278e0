"""Connections through an ssh tunnel: `tunnel_connection` in place of ``socket.connect``."""

from __future__ import annotations

from ropewalk.zmq.ssh.tunnel import (
    open_tunnel,
    openssh_tunnel,
    select_random_ports,
    ssh_tunnel,
    try_passwordless_ssh,
    tunnel_connection,
)

__all__ = [
    "open_tunnel",
    "openssh_tunnel",
    "select_random_ports",
    "ssh_tunnel",
    "try_passwordless_ssh",
    "tunnel_connection",
]
