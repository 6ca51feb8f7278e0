"""Certificates: CURVE keys in files, as czmq and pyzmq write them.

A certificate is two files: ``NAME.key`` has the public key and may be shared; ``NAME.key_secret`` has both keys, and
only its owner may read it.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import ropewalk.zmq as _zmq

_PUBLIC_HEAD = """\
# A public ZeroMQ CURVE certificate, made {now}.
# Give it to the peers that are to talk with its owner, by a way that you trust.

"""
_PRIVATE_HEAD = """\
# A SECRET ZeroMQ CURVE certificate, made {now}.
# Give it to nobody, and let nobody else read it.

"""


def create_certificates(
    key_dir: str | os.PathLike[str], name: str, metadata: dict[str, str] | None = None
) -> tuple[str, str]:
    """Write a new pair of keys to `key_dir`, and return the paths of the public and of the secret file.

    The secret file also has `metadata`. Existing files of that name are replaced.
    """
    public_key, secret_key = _zmq.curve_keypair()
    base = os.path.join(os.fspath(key_dir), name)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    public_file, secret_file = f"{base}.key", f"{base}.key_secret"
    lines = [
        _PUBLIC_HEAD.format(now=now),
        "metadata\n",
        "curve\n",
        f'    public-key = "{public_key.decode()}"\n',
    ]
    _write(public_file, "".join(lines), 0o644)
    lines = [_PRIVATE_HEAD.format(now=now), "metadata\n"]
    lines += [f"    {key} = {value}\n" for key, value in (metadata or {}).items()]
    lines += [
        "curve\n",
        f'    public-key = "{public_key.decode()}"\n',
        f'    secret-key = "{secret_key.decode()}"\n',
    ]
    _write(secret_file, "".join(lines), 0o600)
    return public_file, secret_file


def _write(path: str, content: str, mode: int) -> None:
    # An existing file would keep its mode, and a process that has it open could read the new content.
    Path(path).unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(content)


def load_certificate(filename: str | os.PathLike[str]) -> tuple[bytes, bytes | None]:
    """Return the public and the secret key in a certificate's file; a public file's secret key is None.

    Raises:
        OSError: there is no such file.
        ValueError: the file has no public key.
    """
    if not os.path.exists(filename):
        raise OSError(f"there is no certificate {os.fspath(filename)}")
    keys: dict[bytes, bytes] = {}
    for line in Path(filename).read_bytes().splitlines():
        name, equals, value = line.strip().partition(b"=")
        if equals and not name.startswith(b"#"):
            keys.setdefault(name.strip(), value.strip(b" \t'\""))
    public_key = keys.get(b"public-key")
    if not public_key:
        raise ValueError(f"{os.fspath(filename)} has no public key")
    return public_key, keys.get(b"secret-key") or None


def load_certificates(directory: str | os.PathLike[str] = ".") -> dict[bytes, bool]:
    """Return the public keys of all files ``*.key`` in a folder, each with True.

    Raises:
        OSError: there is no such folder.
        ValueError: one of the files has no public key.
    """
    if not os.path.isdir(directory):
        raise OSError(f"there is no folder {os.fspath(directory)}")
    return {load_certificate(path)[0]: True for path in sorted(Path(directory).glob("*.key"))}


__all__ = ["create_certificates", "load_certificate", "load_certificates"]
