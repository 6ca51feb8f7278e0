"""Options as attributes: ``socket.linger = 0`` is ``socket.set(LINGER, 0)``."""

from __future__ import annotations

import sys
from errno import EFAULT, EINVAL
from typing import TYPE_CHECKING, Any, ClassVar

from ropewalk.zmq.error import ZMQError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import IntEnum


def names_of(*enums: type[IntEnum]) -> dict[str, int]:
    """Return the members of several enums by name; if two have the same name, the first counts."""
    names: dict[str, int] = {}
    for each in reversed(enums):
        names.update(each.__members__)
    return names


class OptionAttributes:
    """Makes options attributes; an object accepts no attributes beside these and those that its class defines."""

    #: The options by name, in capitals.
    _option_names: ClassVar[dict[str, int]] = {}
    #: Names that a class annotates are its own attributes too, even if an option has that name.
    _annotated: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._annotated = cls._annotated.union(_annotations(cls))

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(self)
        if (
            name in self.__dict__
            or name in cls._annotated
            or any(name in each.__dict__ for each in cls.__mro__)
        ):
            object.__setattr__(self, name, value)
        else:
            self._set_named(name, self._number_of(name), value)

    def __getattr__(self, name: str) -> Any:
        option = self._number_of(name)
        try:
            return self._get_named(name, option)
        except ZMQError as error:
            # A write-only option must look like a missing attribute to hasattr and getattr.
            if error.errno in (EINVAL, EFAULT):
                raise AttributeError(f"{name} attribute is write-only") from None
            raise

    def _number_of(self, name: str) -> int:
        option = self._option_names.get(name.upper())
        if option is None:
            raise AttributeError(f"{type(self).__name__} has no such option: {name.upper()}")
        return option

    def _set_named(self: Any, name: str, option: int, value: Any) -> None:
        self.set(option, value)

    def _get_named(self: Any, name: str, option: int) -> Any:
        return self.get(option)


def _annotations(cls: type) -> Iterable[str]:
    """Return the names that the class itself annotates."""
    own = vars(cls)
    if sys.version_info >= (3, 14) and "__annotations__" not in own:
        # Not annotated as strings, which are there at once: asking takes a module that takes long to import.
        if "__annotate_func__" not in own:
            return ()
        from annotationlib import Format, get_annotations

        return get_annotations(cls, format=Format.FORWARDREF)
    names: Iterable[str] = own.get("__annotations__", ())
    return names


def repr_name(cls: type) -> str:
    """Return the name of a class in its objects' `repr`: its public name, or a subclass's own."""
    name: str | None = vars(cls).get("_repr_name")
    return f"{cls.__module__}.{cls.__qualname__}" if name is None else name
