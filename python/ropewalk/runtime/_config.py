"""The configuration of a `Runtime`: read from TOML, checked as a whole, with errors that name file, key and value.

The settings of a pool are the parameters of `Pool`; this module lists none of them. What a setting accepts is what
`Pool` accepts, because a pool's own checks run here. Texts stand for what TOML has no type for: durations, sizes and
functions, each according to the annotation of the parameter.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from ropewalk._errors import ConfigError
from ropewalk.pool.parent._options import _SPELLINGS
from ropewalk.pool.parent._pool import Pool, check_settings
from ropewalk.runtime import _lines, _units
from ropewalk.runtime._routes import why_lost

#: The key with which a pool takes the settings of another one as its defaults.
LIKE = "like"
_TOP = ("default", "eager", "pools", "routes")
#: The table of a server of tools (`ropewalk.serving`), which a runtime leaves to it.
_OF_OTHERS = ("serve",)


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """A checked configuration of a runtime."""

    #: The arguments of each pool, by its name.
    pools: Mapping[str, Mapping[str, Any]]
    #: The name of the pool for functions without a route.
    default: str
    #: Names of pools by ``"module"`` or ``"module:function"``.
    routes: Mapping[str, str]
    #: Whether all pools are made at once.
    eager: bool


def from_toml(source: str | os.PathLike[str], *, finds_routes: bool = False) -> RuntimeSettings:
    """Reads and checks a file, or the text of one: a text has a line break, a path has none.

    With `finds_routes` it looks for the modules and functions of the routes, too.

    Raises:
        ConfigError: something in it is wrong.
        OSError: the file cannot be read.
    """
    if isinstance(source, str) and "\n" in source:
        place, text = "the configuration", source
    else:
        place = os.fspath(source)
        try:
            text = Path(source).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise _refused(place, "", f"the file is not UTF-8 text: {error}") from None
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refused(place, "", f"this is not TOML: {error}") from None
    except RecursionError:
        raise _refused(place, "", "its arrays or tables are nested too deeply") from None
    try:
        return _from_tables(place, read, finds_routes=finds_routes)
    except ConfigError as error:
        raise _lines.located(error, text) from error.__cause__


def _from_tables(place: str, read: Mapping[str, Any], *, finds_routes: bool) -> RuntimeSettings:
    for key in read:
        if key not in _TOP and key not in _OF_OTHERS:
            raise _unknown(place, key, read[key], (*_TOP, *_OF_OTHERS))
    made = checked(
        place,
        read.get("pools", {}),
        read.get("default"),
        read.get("routes", {}),
        read.get("eager", False),
    )
    for row, pool in made.routes.items() if finds_routes else ():
        why = why_lost(row)
        if why is not None:
            raise _refused(place, f"routes.{_quoted(row)}", why, pool)
    return made


def checked(place: str, pools: object, default: object, routes: object, eager: object) -> RuntimeSettings:
    """Checks a configuration from anywhere; `place` names the file, or the call.

    Raises:
        ConfigError: something in it is wrong.
    """
    tables = _tables(place, pools)
    settings = {name: _pool_settings(place, name, tables) for name in tables}
    if default is None and len(settings) == 1:
        default = next(iter(settings))
    if not isinstance(default, str) or default not in settings:
        why = "is missing: functions without a route need a pool" if default is None else "is not a pool"
        raise _refused(place, "default", why, default, settings)
    rows = _mapping(place, "routes", routes)
    for function, pool in rows.items():
        if not isinstance(pool, str) or pool not in settings:
            raise _refused(place, f"routes.{_quoted(function)}", "is not a pool", pool, settings)
    if not isinstance(eager, bool):
        raise _refused(place, "eager", "is wrong", eager, ("true", "false"))
    frozen = {name: MappingProxyType(table) for name, table in settings.items()}
    return RuntimeSettings(MappingProxyType(frozen), default, MappingProxyType(rows), eager)


def _tables(place: str, pools: object) -> dict[str, dict[str, Any]]:
    tables = {
        name: _mapping(place, f"pools.{_quoted(name)}", table)
        for name, table in _mapping(place, "pools", pools).items()
    }
    if not tables:
        raise _refused(place, "pools", "is empty: name at least one pool, as in [pools.jobs]")
    return tables


def _mapping(place: str, key: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _refused(place, key, "must be a table", value)
    made = dict(cast("Mapping[object, Any]", value))
    for name in made:
        if not isinstance(name, str) or not name:
            raise _refused(place, key, "has a name that is not a text, or is empty", name)
    return cast("dict[str, Any]", made)


def _parameters() -> dict[str, str]:
    """Returns the parameters of `Pool` with their annotations."""
    return _parameters_of(Pool)


@functools.cache
def _parameters_of(made: type) -> dict[str, str]:
    found = inspect.signature(cast("Any", made).__init__).parameters.values()
    named = [each for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return {each.name: str(each.annotation) for each in named if each.name != "self"}


def _pool_settings(place: str, name: str, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the settings of a pool, with those of the pools that it is like, checked together."""
    settings: dict[str, Any] = {}
    #: The full key of each setting, and its value as it is written.
    written: dict[str, tuple[str, Any]] = {}
    for owner in reversed(_line(place, name, tables)):
        prefix = f"pools.{_quoted(owner)}"
        for key, value in tables[owner].items():
            if key == LIKE:
                continue
            if key not in _parameters():
                raise _unknown(place, key, value, (*_parameters(), LIKE), prefix)
            written[key] = f"{prefix}.{key}", value
            settings[key] = _converted(place, written[key][0], _parameters()[key], value)
    wrong = _wrong(settings)
    if wrong is not None:
        culprit, error = wrong
        if culprit is None:
            why = f"these settings do not go together: {error}"
            raise _refused(place, f"pools.{_quoted(name)}", why) from error
        raise _refused(place, written[culprit][0], str(error), written[culprit][1]) from error
    settings.setdefault("name", name)
    return settings


def _wrong(settings: Mapping[str, Any]) -> tuple[str | None, Exception] | None:
    """Returns the error of settings, and the key of the one that is wrong; `None` for no key if several are at odds."""
    error = _error(settings)
    if error is None:
        return None
    # Without the wrong one the others are right, unless two are wrong.
    cured = [
        key for key in settings if _error({name: settings[name] for name in settings if name != key}) is None
    ]
    if len(cured) == 1:
        return cured[0], error
    alone = {key: _error({key: value}) for key, value in settings.items()} if not cured else {}
    return next(((key, each) for key, each in alone.items() if each is not None), (None, error))


def _error(settings: Mapping[str, Any]) -> Exception | None:
    try:
        check_settings(settings)
    except (TypeError, ValueError) as error:
        return error
    return None


def _line(place: str, name: str, tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a pool, the one that it is like, the one that this is like, and so on."""
    line = [name]
    while (before := tables[line[-1]].get(LIKE)) is not None:
        key = f"pools.{_quoted(line[-1])}.{LIKE}"
        if not isinstance(before, str) or before not in tables:
            raise _refused(place, key, "is not a pool", before, tables)
        if before in line:
            circle = " -> ".join([*line[line.index(before) :], before])
            raise _refused(place, key, f"makes a circle ({circle})", before)
        line.append(before)
    return line


def _converted(place: str, key: str, annotation: str, value: object) -> object:
    """Makes a duration, a size or a function of a text, where the parameter takes no text, and a `Retry` of a table."""
    if "Retry" in annotation and _is_table(value):
        return _retry(place, key, cast("Mapping[object, Any]", value))
    if not isinstance(value, str) or "str" in annotation or "Literal" in annotation or "Kind" in annotation:
        return value
    if "Callable" in annotation:
        return _function(place, key, value)
    for word, convert in (("Bytes", _units.size), ("float", _units.seconds)):
        if word in annotation:
            try:
                return convert(value)
            except ValueError as error:
                raise _refused(place, key, f"must be {error}", value) from None
    return value


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _retry(place: str, key: str, table: Mapping[object, Any]) -> object:
    """Makes a `Retry` of its arguments; classes and predicates are written as functions are."""
    # Most programs have no policy, and do without its module.
    from ropewalk import _retry as policy

    annotations = _parameters_of(policy.Retry)
    given: dict[str, Any] = {}
    for name, value in _mapping(place, key, table).items():
        if name not in annotations:
            raise _unknown(place, name, value, annotations, key, policy._SPELLINGS)
        full = f"{key}.{name}"
        made = _on(place, full, value) if name == "on" else _converted(place, full, annotations[name], value)
        alone: dict[str, Any] = {name: made}
        try:
            policy.Retry(**alone)
        except (TypeError, ValueError) as error:
            raise _refused(place, full, str(error), value) from error
        given[name] = made
    return policy.Retry(**given)


def _on(place: str, key: str, value: object) -> object:
    if isinstance(value, list):
        return tuple(_on(place, key, one) for one in cast("list[object]", value))
    return _function(place, key, value) if isinstance(value, str) else value


def _function(place: str, key: str, written: str) -> object:
    module, _, name = written.partition(":")
    if not module or not name:
        raise _refused(place, key, "must name a function, as in 'package.module:function'", written)
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (Exception, SystemExit) as error:  # A module runs its own code when it is imported.
        raise _refused(place, key, f"cannot be imported: {error or type(error).__name__}", written) from error


def _quoted(name: str) -> str:
    """Writes a name as a part of a TOML key."""
    return name if name.replace("_", "").replace("-", "").isalnum() else f'"{name}"'


def _unknown(
    place: str,
    key: str,
    value: object,
    known: Iterable[str],
    prefix: str = "",
    spellings: Mapping[str, str] = _SPELLINGS,
) -> ConfigError:
    known = tuple(known)
    close = get_close_matches(key, known, 1)
    meant = f" Did you mean {close[0]!r}?" if close else ""
    if prefix and key in spellings:
        meant = f" Ropewalk has {spellings[key]}."
    full = f"{prefix}.{_quoted(key)}" if prefix else _quoted(key)
    # A text is not shown: the key may be that of a token.
    error = _refused(place, full, "is not a setting", None if _has_text(value) else value, known, meant)
    error.value = value
    return error


def _has_text(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_text, cast("Mapping[object, object]", value).values()))
    if isinstance(value, list):
        return any(map(_has_text, cast("list[object]", value)))
    return isinstance(value, str)


def _refused(
    place: str, key: str, why: str, value: object = None, allowed: Iterable[str] = (), meant: str = ""
) -> ConfigError:
    allowed = tuple(allowed)
    given = "" if value is None else f" = {value!r}"
    choices = f" Allowed: {', '.join(allowed)}." if allowed else ""
    what = f"{key}{given}: " if key else ""
    return ConfigError(f"{place}: {what}{why.rstrip('.')}.{meant}{choices}", place, key, value, allowed)
