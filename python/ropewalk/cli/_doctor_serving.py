"""What `ropewalk doctor` says of serving tools: the libraries, the limits, and what the settings name."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

import ropewalk
from ropewalk.serving import _clients, _settings

#: Descriptors of a server besides its connections: listeners, workers, logs.
_OWN_FILES = 128
#: Seconds in which a collector must answer.
_PATIENCE = 1.0
#: What ends the name of a setting that is the path of a file.
_OF_FILES = ("_file", "_cert", "_key", "_ca")

#: What reads the files of clients.
_CLIENTS: Mapping[str, Callable[[str], Sized]] = {
    "token_file": _clients.of_tokens,
    "clients_file": _clients.of_file,
}

#: A name, a value, and what to try if that is a problem.
Said = tuple[str, str, str]


def findings(config: str | None) -> list[Said]:
    """Returns what a server of this configuration and of the environment needs."""
    named = config is not None or any(name.startswith(_settings.PREFIX) for name in os.environ)
    try:
        settings = _settings.read({}, os.environ, config)
    except (ropewalk.RopewalkError, OSError, ValueError) as error:
        return [*_libraries(named), ("settings", "cannot be read", str(error))]
    said = [*_libraries(named), _files(settings, named)]
    for name in ("http", "grpc"):
        address = getattr(settings, name) or (_settings.DEFAULT_HTTP if name == "http" else None)
        if address is not None:
            said.append(_port(name, address, named))
    files = list(_readable(settings))
    said.extend(files)
    if not any(advice for *_, advice in files):
        said.extend(_together(settings))
    if settings.otlp is not None:
        said.append(_collector(settings.otlp))
    return said


def _libraries(named: bool) -> Iterator[Said]:
    found: dict[str, str] = {}
    for name in ("pydantic", "msgspec"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    missing = all(text == "not installed" for text in found.values())
    advice = (
        "arguments are checked by one of them: pip install 'ropewalk[serve]'" if missing and named else ""
    )
    for name, text in found.items():
        yield name, text, advice
        advice = ""


def _files(settings: _settings.Settings, named: bool) -> Said:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections + _OWN_FILES
    enough = soft == resource.RLIM_INFINITY or soft >= wanted
    text = f"{settings.max_connections:,} wanted, {'no limit' if soft < 0 else f'{soft:,} open files'}"
    # Python's own limit can be raised by the process up to the hard one, but the command does not do so.
    how = "" if hard != resource.RLIM_INFINITY and hard < wanted else " (the hard limit allows it)"
    advice = f"each connection is a descriptor: ulimit -n {wanted}{how}, or lower max_connections"
    return "connections", text, "" if enough or not named else advice


def _port(name: str, address: str, named: bool) -> Said:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the server does: a port whose connections have only just ended is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            advice = f"choose another address (--{name}), or end what listens there"
            return f"{name}, {address}", error.strerror or str(error), advice if named else ""
    return f"{name}, {address}", "free", ""


def _readable(settings: _settings.Settings) -> Iterator[Said]:
    for each in fields(settings):
        path: object = getattr(settings, each.name)
        if not each.name.endswith(_OF_FILES) or not isinstance(path, str):
            continue
        name = f"{each.name}, {path}"
        try:
            with open(path, "rb") as file:
                file.read(1)
            # As the server does it.
            text = f"{len(_CLIENTS[each.name](path))} known" if each.name in _CLIENTS else "can be read"
        except (ropewalk.ConfigError, ropewalk.ServingError) as error:
            yield name, "cannot be used", str(error)
        except OSError as error:
            yield name, error.strerror or str(error), "the server must be able to read it"
        else:
            yield name, text, ""


def _together(settings: _settings.Settings) -> Iterator[Said]:
    """Says whether the settings go together; each is right by itself."""
    try:
        settings.listening()
    except (ropewalk.ConfigError, ropewalk.ServingError) as error:
        yield "settings", "a server would refuse them", str(error)


def _collector(url: str) -> Said:
    parts = urlsplit(url)
    try:
        where = parts.hostname or "", parts.port or 80
        with socket.create_connection(where, timeout=_PATIENCE):
            return f"collector, {url}", "answers", ""
    except (OSError, ValueError) as error:
        advice = "spans and numbers would be lost: start the collector, or leave out otlp"
        return f"collector, {url}", str(error), advice
