"""`Secret`: what a step needs and no file shall have."""

from __future__ import annotations

import io
import os
import pickle
from typing import Any

#: The names of all secrets that this process has made or unpickled.
_NAMES: set[str] = set()
#: A shorter value would be found in texts that have nothing to do with it.
_SHORTEST = 4


class Secret:
    """The name of an environment variable whose value is neither recorded nor printed.

    A step gets the secret as an argument, and reads `value` where it runs. The journal has the name alone, and the
    value is blotted out of the errors that are recorded, shown, and raised in the program, their causes included.

    Examples:
        >>> import os
        >>> from ropewalk.flows import Secret
        >>> os.environ["SHOP_TOKEN"] = "a-long-token"
        >>> token = Secret("SHOP_TOKEN")
        >>> token, len(token.value)
        (Secret('SHOP_TOKEN'), 12)
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        given: Any = name
        if not isinstance(given, str) or not given:
            raise TypeError(f"a secret is the name of an environment variable, not {type(given).__name__}")
        self._name = name
        _NAMES.add(name)

    @property
    def name(self) -> str:
        """The name of the environment variable."""
        return self._name

    @property
    def value(self) -> str:
        """The value, of the process in which it is read.

        Raises:
            LookupError: the environment does not have it.
        """
        try:
            return os.environ[self._name]
        except KeyError:
            raise LookupError(
                f"the environment has no {self._name}, which is a secret of this program"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._name,)

    def __repr__(self) -> str:
        return f"Secret({self._name!r})"


class _Blotting(pickle.Pickler):
    """Pickles a value with other text in the place of what has secrets."""

    def persistent_id(self, obj: Any) -> str | bytes | None:
        if type(obj) is bytes:
            # Latin-1 keeps every byte, and the ASCII of a secret.
            other = redacted(obj.decode("latin-1")).encode("latin-1")
            return None if other == obj else other
        text = redacted(obj) if type(obj) is str else obj
        return None if text is obj or text == obj else text


class _Blotted(pickle.Unpickler):
    """Unpickles what `_Blotting` has pickled."""

    def persistent_load(self, pid: Any) -> Any:
        return pid


def blotted(value: Any) -> Any:
    """Returns a value, or a copy of it in whose texts the values of secrets are blotted out.

    Raises:
        Exception: it cannot be pickled.
    """
    file = io.BytesIO()
    _Blotting(file, 5).dump(value)
    file.seek(0)
    return _Blotted(file).load()


def are_known() -> bool:
    """Whether this process has made or unpickled a secret whose value it has."""
    return bool(_NAMES) and bool(_values())


def has_secret(data: bytes) -> bool:
    """Whether bytes, a pickle for instance, hold the value of one of this process's secrets."""
    return any(value.encode(errors="surrogateescape") in data for value in _values())


def redacted(text: str) -> str:
    """Returns a text in which the values of this process's secrets are blotted out."""
    for value in _values():
        text = text.replace(value, "***")
    return text


def _values() -> list[str]:
    values = (os.environ.get(name, "") for name in tuple(_NAMES))
    return sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)
