"""The pools of a server, as its configuration has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk._errors import ConfigError, ServingError
from ropewalk.runtime import _config
from ropewalk.runtime._lines import located
from ropewalk.serving import _settings

#: The name of the pool of a server without a configuration.
_POOL = "tools"
#: Settings of pools that a server has no use for, and why.
_NOT_FOR_TOOLS = {
    "kind": "tools run in worker processes, kind='process'",
    "retries": "a tool that may be run again says so itself: @tool(idempotent=True)",
    "priority": "calls of tools have no priorities",
    "writable": "the arguments of tools are copies",
}


def pools_of(path: str | None, workers: int | None) -> _config.RuntimeSettings:
    """Returns the settings of the pools: those of the file, or one pool.

    Raises:
        ConfigError: one is wrong, or is for tools without use.
        ServingError: `workers` is given beside pools.
    """
    tables: Mapping[str, Any] = {} if path is None else _settings.tables_of(path)[1]
    if path is not None and any(key in tables for key in ("pools", "default", "routes", "eager")):
        if workers is not None:
            raise ServingError(f"workers is for a server without pools of its own, and {path} has some")
        made = _config.from_toml(path)
    else:
        of_pool = {} if workers is None else {"workers": workers}
        unknown = [key for key in tables if key != _settings.TABLE]
        if unknown:
            # Its error names the key, and what is allowed.
            assert path is not None
            _config.from_toml(path)
        made = _config.checked("Server()", {_POOL: of_pool}, None, {}, False)
    pools: dict[str, Any] = {}
    for name, settings in made.pools.items():
        for key, why in _NOT_FOR_TOOLS.items():
            if key in settings and not (key == "kind" and settings[key] in ("auto", "process")):
                full, value = f"pools.{name}.{key}", settings[key]
                assert path is not None
                error = ConfigError(f"{path}: {full} = {value!r}: {why}.", path, full, value)
                raise located(error, _settings.tables_of(path)[0])
        pools[name] = {**settings, "kind": "process"}
    return _config.RuntimeSettings(pools, made.default, made.routes, made.eager)
