"""Tunnels by ssh: another program of that name forwards, and writes down how it was called."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import ropewalk.zmq as zmq
from ropewalk.zmq import ssh
from ropewalk.zmq.ssh.tunnel import SSHException

#: An ssh that needs no server: it asks for a password as ssh does, and forwards one connection.
FORWARDER = """\
import os, socket, subprocess, sys, threading
from pathlib import Path
arguments = sys.argv[1:]
Path(os.environ["SAID"]).write_text("\\n".join(arguments))
if "BatchMode=no" in arguments:
    asked = subprocess.run([os.environ["SSH_ASKPASS"]], capture_output=True, text=True).stdout.strip()
    if asked != "secret":
        sys.exit("Permission denied (password).")
if "-L" not in arguments:
    sys.exit(0 if "good" in arguments else 255)
_, local, host, remote = arguments[arguments.index("-L") + 1].split(":")
with socket.create_server(("127.0.0.1", int(local))) as listener:
    here, _ = listener.accept()
there = socket.create_connection((host, int(remote)))
def copy(source, target):
    while data := source.recv(4096):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
threads = [threading.Thread(target=copy, args=pair) for pair in ((here, there), (there, here))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the arguments of the last ssh."""
    script = tmp_path / "forward.py"
    script.write_text(FORWARDER)
    program = tmp_path / "ssh"
    program.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        exec {sys.executable} {script} "$@"
    """)
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    return tmp_path / "said"


@pytest.mark.parametrize("password", [None, "secret"])
def test_a_socket_connects_through_a_tunnel(password: str | None, said: Path, context: Any) -> None:
    rep, req = context.socket(zmq.REP), context.socket(zmq.REQ)
    port = rep.bind_to_random_port("tcp://127.0.0.1")
    tunnel = ssh.tunnel_connection(
        req, f"tcp://127.0.0.1:{port}", "user@host:2222", keyfile="key", password=password, timeout=20
    )
    try:
        req.send(b"question")
        assert rep.recv() == b"question"
        rep.send(b"answer")
        assert req.recv() == b"answer"
    finally:
        for socket in (rep, req):
            socket.close(linger=0)
        tunnel.terminate()
        tunnel.communicate(timeout=20)
    arguments = said.read_text().split("\n")
    assert arguments[arguments.index("-p") + 1] == "2222"
    assert arguments[arguments.index("-i") + 1] == "key"
    assert arguments[-2:] == ["user@host", "sleep 20"]
    assert "secret" not in said.read_text()


def test_what_ssh_says_is_the_error(said: Path, context: Any) -> None:
    socket = context.socket(zmq.REQ)
    with pytest.raises(SSHException, match="Permission denied"):
        ssh.tunnel_connection(socket, "tcp://127.0.0.1:1", "host", password="wrong")


def test_keys_are_tried(said: Path) -> None:
    assert ssh.try_passwordless_ssh("good")
    assert not ssh.try_passwordless_ssh("bad")
    assert "BatchMode=yes" in said.read_text()


def test_what_is_no_tunnel(said: Path) -> None:
    for addr in ("ipc://path", "tcp://host", "tcp://host:*"):
        with pytest.raises(ValueError, match="tunnel"):
            ssh.open_tunnel(addr, "host")
    with pytest.raises(ValueError, match="option"):
        ssh.open_tunnel("tcp://host:1", "-oProxyCommand=true")
    with pytest.raises(NotImplementedError):
        ssh.open_tunnel("tcp://host:1", "host", paramiko=True)


def test_free_ports_differ() -> None:
    assert len(set(ssh.select_random_ports(10))) == 10
