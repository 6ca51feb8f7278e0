"""`ropewalk check`: tries configurations of runtimes and servers, and compares contracts of tasks with their code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ropewalk
from ropewalk._target import load_module
from ropewalk.cli._errors import SOME_FAILED, SUCCESS, CommandError

if TYPE_CHECKING:
    from ropewalk.cli._flags import CheckOptions
    from ropewalk.runtime._config import RuntimeSettings
    from ropewalk.state import Task
    from ropewalk.state.check import Examined


def run_check(options: CheckOptions) -> int:
    """Checks each file and module; returns 0, or 1 if something is wrong, and says what.

    Raises:
        CommandError: a file cannot be read, or fails when it is imported.
    """
    configurations = [target for target in options.targets if target.endswith(".toml")]
    modules = [target for target in options.targets if target not in configurations]
    status = SUCCESS
    for path in configurations:
        status = max(status, _check_configuration(path))
    if modules:
        status = max(status, _check_modules(modules, options.json, _config_of_server(configurations)))
    return status


def _check_configuration(path: str) -> int:
    # As `python -m` does, so that the functions that the file names can be imported.
    sys.path.insert(0, os.getcwd())
    try:
        _kind_of(path)(path)
    except (ropewalk.ConfigError, ropewalk.ServingError) as error:
        sys.stderr.write(f"ropewalk: {error}\n")
        return SOME_FAILED
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    return SUCCESS


def _kind_of(path: str) -> Callable[[str], object]:
    """Returns what checks a file of TOML: that of a server's clients, of a server, or of a runtime."""
    from ropewalk.serving import _clients, _settings

    tables = _settings.tables_of(path)[1]
    if _clients.TABLE in tables and not {"pools", _settings.TABLE} & tables.keys():
        return _check_clients
    return _check_server if _settings.TABLE in tables else _check_runtime


def _check_clients(path: str) -> None:
    from ropewalk.serving._clients import of_file

    for client in of_file(path):
        # Tokens are never shown.
        known = [what for what in ("token", "certificate") if getattr(client, what) is not None]
        tools = "all tools" if client.tools is None else ", ".join(client.tools) or "no tool"
        print(
            f"client {client.name}, by its {' and '.join(known)}: {tools}{', admin' if client.admin else ''}"
        )


def _check_server(path: str) -> None:
    from ropewalk.serving import _settings
    from ropewalk.serving._pools import pools_of

    settings = _settings.read({}, {}, path).listening()
    for name in _settings.tables_of(path)[1][_settings.TABLE]:
        print(f"serve {name}: {getattr(settings, name)!r}")
    if settings.clients:
        print(f"clients: {len(settings.clients)}")
    _print_pools(pools_of(path, None))


def _check_runtime(path: str) -> None:
    _print_pools(ropewalk.Runtime.check(path))


def _print_pools(config: RuntimeSettings) -> None:
    for name, settings in config.pools.items():
        note = " (the default)" if name == config.default else ""
        print(f"pool {name}{note}: {', '.join(f'{key}={value!r}' for key, value in settings.items())}")
    for function, name in config.routes.items():
        print(f"route {function}: {name}")


def _config_of_server(configurations: list[str]) -> str | None:
    """Returns the configuration whose pools run the tools: the one beside them that is none of clients."""
    found = [path for path in configurations if _kind_of(path) is not _check_clients]
    return found[0] if len(found) == 1 else None


def _tools_of(target: str, module: ModuleType, config: str | None) -> list[str]:
    """Returns the names of a module's tools, which can be served.

    Raises:
        ServingError, ConfigError: one cannot.
    """
    if "ropewalk.serving" not in sys.modules:
        return []
    from ropewalk.serving._app import App
    from ropewalk.serving._worker import has_tools

    return sorted(App(target, config, None).tools) if has_tools(module) else []


def _check_modules(targets: list[str], as_json: bool, config: str | None) -> int:
    from ropewalk.state.check import examine

    found: list[Examined] = []
    served: dict[str, list[str]] = {}
    refused = False
    empty: list[str] = []
    for target in targets:
        module = load_module(target)
        tasks = list(_tasks_of(module))
        try:
            tools = _tools_of(target, module, config)
        except (ropewalk.ConfigError, ropewalk.ServingError, ropewalk.ExtraMissing) as error:
            # What is wrong with the configuration has been said.
            if not isinstance(error, ropewalk.ConfigError):
                sys.stderr.write(f"ropewalk: {target}: {error}\n")
            refused = True
        else:
            if tools:
                served[target] = tools
            elif not tasks:
                empty.append(target)
        found += [examine(task) for task in tasks]
    counts = {level: sum(one.level == level for of in found for one in of.findings) for level in _LEVELS}
    if as_json:
        numbers = {f"{level}s": count for level, count in counts.items()}
        print(json.dumps({"tasks": [asdict(one) for one in found], "tools": served, **numbers}))
    else:
        for one in found:
            _print(one)
        for target, tools in served.items():
            print(f"{target}: {_counted('tool', len(tools))} can be served: {', '.join(tools)}")
        for target in empty:
            print(f"{target}: no task and no tool is defined here")
        print(", ".join(_counted(name, number) for name, number in {"task": len(found), **counts}.items()))
    return SOME_FAILED if refused or counts["error"] else SUCCESS


_LEVELS = ("error", "warning", "note")


def _tasks_of(module: ModuleType) -> Iterator[Task[..., Any]]:
    """Returns the tasks that a module defines, in the order of their lines; each once, whatever names it has."""
    values: list[Any] = list(vars(module).values())
    for kind in [value for value in values if isinstance(value, type)]:
        values += [getattr(inner, "__func__", inner) for inner in list(vars(kind).values())]
    tasks: dict[int, Task[..., Any]] = {}
    for value in values:
        if _is_task(value) and value.__module__ == module.__name__:
            tasks[id(value)] = value
    yield from sorted(tasks.values(), key=lambda task: task.__wrapped__.__code__.co_firstlineno)


def _is_task(value: Any) -> bool:
    from ropewalk.state import Task

    return isinstance(value, Task)


def _print(examined: Examined) -> None:
    for one in examined.findings:
        print(f"{_shown(one.file)}:{one.line}:{one.column}: {one.level}: {one.task}: {one.message}")
    wrong = any(one.level != "note" for one in examined.findings)
    if examined.suggestion and (wrong or not examined.has_contract):
        print(
            f"{_shown(examined.file)}:{examined.line}: {examined.task}: its code needs {examined.suggestion}"
        )


def _shown(file: str) -> str:
    """Returns the path of a file from the current folder, if it is in that."""
    here = os.path.join(os.getcwd(), "")
    return file.removeprefix(here)


def _counted(name: str, number: int) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
