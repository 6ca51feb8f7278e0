"""Tunnels by the system's ``ssh`` program, which knows the user's keys, hosts and jumps.

A password is given to ``ssh`` through a helper program that it asks (``SSH_ASKPASS``), and never on a command line.
"""

from __future__ import annotations

import os
import socket as sockets
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

#: How often a tunnel that begins is asked whether it listens, in seconds.
_BEAT = 0.02


class SSHException(Exception):
    """``ssh`` did not make the tunnel; the message is its own."""


def select_random_ports(n: int) -> list[int]:
    """Return `n` ports of this host that nobody listens on now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(sockets.socket()) for _ in range(n)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def tunnel_connection(
    socket: Any,
    addr: str,
    server: str,
    keyfile: str | None = None,
    password: str | None = None,
    paramiko: bool | None = None,
    timeout: int = 60,
) -> subprocess.Popen[bytes]:
    """Connect a socket to an endpoint that `server` reaches, and return the tunnel's process. As `open_tunnel`."""
    endpoint, tunnel = open_tunnel(addr, server, keyfile, password, paramiko, timeout)
    socket.connect(endpoint)
    return tunnel


def open_tunnel(
    addr: str,
    server: str,
    keyfile: str | None = None,
    password: str | None = None,
    paramiko: bool | None = None,
    timeout: int = 60,
) -> tuple[str, subprocess.Popen[bytes]]:
    """Make a tunnel to ``tcp://host:port`` as `server` sees it.

    Args:
        addr: The endpoint.
        server: ``user@host:port``, or a name of the user's ssh configuration.
        keyfile: The file of a private key.
        password: The password; without it only keys are used.
        paramiko: Not supported: ``ssh`` is always used.
        timeout: The tunnel ends when it was not used for so many seconds.

    Returns:
        The local endpoint, and the tunnel's process, which ends the tunnel by ``terminate``.

    Raises:
        SSHException: ``ssh`` refused.
        NotImplementedError: paramiko was wanted.
    """
    if paramiko:
        raise NotImplementedError("tunnels are made by the ssh program, not by paramiko")
    transport, _, place = addr.partition("://")
    host, _, port = place.rpartition(":")
    if transport != "tcp" or not host or not port.isdigit():
        raise ValueError(f"a tunnel leads to tcp://host:port, not to {addr!r}")
    [local] = select_random_ports(1)
    tunnel = openssh_tunnel(local, int(port), server, host, keyfile, password, timeout)
    return f"tcp://127.0.0.1:{local}", tunnel


def openssh_tunnel(
    lport: int,
    rport: int,
    server: str,
    remoteip: str = "127.0.0.1",
    keyfile: str | None = None,
    password: str | None = None,
    timeout: int = 60,
) -> subprocess.Popen[bytes]:
    """Make a tunnel from this host's port `lport` to ``remoteip:rport`` as `server` sees it. As `open_tunnel`."""
    # The command keeps the connection open until it ends, and then for as long as the tunnel is used.
    forward = ["-L", f"127.0.0.1:{lport}:{remoteip}:{rport}", "-o", "ExitOnForwardFailure=yes"]
    with ExitStack() as stack:
        environment = stack.enter_context(_Password(password))
        command = [*_ssh(server, keyfile, password), *forward, _target(server), f"sleep {timeout}"]
        tunnel = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.monotonic() + timeout
        while not _listens(lport):
            if tunnel.poll() is not None:
                said = tunnel.communicate()[1].decode(errors="replace").strip()
                raise SSHException(said or f"ssh ended with {tunnel.returncode}")
            if time.monotonic() > end:
                tunnel.kill()
                tunnel.communicate()
                raise SSHException(f"{server} did not answer in {timeout} s")
            time.sleep(_BEAT)
    return tunnel


ssh_tunnel = openssh_tunnel


def try_passwordless_ssh(server: str, keyfile: str | None = None, paramiko: bool | None = None) -> bool:
    """Whether the server takes one of the user's keys."""
    if paramiko:
        raise NotImplementedError("tunnels are made by the ssh program, not by paramiko")
    command = [*_ssh(server, keyfile, None), _target(server), "true"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0


def _ssh(server: str, keyfile: str | None, password: str | None) -> list[str]:
    """The program and its options. Without a password it must not ask for one."""
    command = ["ssh", "-o", f"BatchMode={'no' if password is not None else 'yes'}"]
    if keyfile is not None:
        command += ["-i", keyfile]
    host, _, port = server.rpartition(":")
    if host and port.isdigit():
        command += ["-p", port]
    return command


def _target(server: str) -> str:
    host, _, port = server.rpartition(":")
    target = host if host and port.isdigit() else server
    if target.startswith("-"):
        raise ValueError(f"{server!r} is no server: ssh would take it for an option")
    return target


def _listens(port: int) -> bool:
    """Whether a program listens at the port, by the system's table: a connection would be one of the tunnel's."""
    wanted = f"0100007F:{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(fields[1] == wanted and fields[3] == "0A" for fields in map(str.split, lines))


class _Password:
    """The environment in which ssh asks a helper program for the password."""

    def __init__(self, password: str | None) -> None:
        self._password = password
        self._stack = ExitStack()

    def __enter__(self) -> dict[str, str]:
        environment = {**os.environ}
        if self._password is None:
            return environment
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        helper = folder / "ask"
        # Only this user's processes can read an environment.
        helper.write_text(f"#!{sys.executable}\nimport os\nprint(os.environ['ROPEWALK_SSH_PASSWORD'])\n")
        helper.chmod(stat.S_IRWXU)
        return {
            **environment,
            "SSH_ASKPASS": str(helper),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": environment.get("DISPLAY", ":0"),
            "ROPEWALK_SSH_PASSWORD": self._password,
        }

    def __exit__(self, *_raised: object) -> None:
        self._stack.close()


__all__ = [
    "SSHException",
    "open_tunnel",
    "openssh_tunnel",
    "select_random_ports",
    "ssh_tunnel",
    "try_passwordless_ssh",
    "tunnel_connection",
]
