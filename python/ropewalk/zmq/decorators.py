"""Decorators that pass a new context or socket to a function, and close it when the function returns."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ropewalk.zmq._context import Context

if TYPE_CHECKING:
    from collections.abc import Callable

_Function = TypeVar("_Function", bound="Callable[..., object]")


def context(*args: Any, **kwargs: Any) -> Callable[[_Function], _Function]:
    """Give a function a new context, as its last positional argument or by name.

    Args:
        *args: The argument's name, if it is passed by name; the others are passed to `Context`.
        **kwargs: ``name``, in place of the first of `args`; the others are passed to `Context`.
    """
    name, args = _named(args, kwargs)
    return _given(name, lambda _args, _kwargs: Context(*args, **kwargs))


def socket(*args: Any, **kwargs: Any) -> Callable[[_Function], _Function]:
    """Give a function a new socket, as its last positional argument or by name.

    The socket belongs to the context among the function's own arguments, else to `Context.instance`.

    Args:
        *args: The argument's name, if it is passed by name; the others are passed to `Context.socket`.
        **kwargs: ``name``, in place of the first of `args`; ``context_name``, the name of the function's argument that
            is the context; the others are passed to `Context.socket`.

    Examples:
        >>> import ropewalk.zmq as zmq
        >>> from ropewalk.zmq.decorators import context, socket
        >>> @context()
        ... @socket(zmq.PUSH)
        ... def work(context, push):
        ...     return push.type.name
        >>> work()
        'PUSH'
    """
    name, args = _named(args, kwargs)
    context_name: str = kwargs.pop("context_name", "context")

    def make(their_args: tuple[Any, ...], their_kwargs: dict[str, Any]) -> Any:
        candidates: list[Any] = [their_kwargs.get(context_name), *their_args]
        given = next(filter(_is_context, candidates), None)
        if given is None:
            given = cast("Any", Context).instance()
        return given.socket(*args, **kwargs)

    return _given(name, make)


def _is_context(candidate: object) -> bool:
    return isinstance(candidate, Context)


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str | None, tuple[Any, ...]]:
    if isinstance(kwargs.get("name"), str):
        return kwargs.pop("name"), args
    if args and isinstance(args[0], str):
        return args[0], args[1:]
    return None, args


def _given(
    name: str | None, make: Callable[[tuple[Any, ...], dict[str, Any]], Any]
) -> Callable[[_Function], _Function]:
    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> object:
            with make(args, kwargs) as made:
                if name is None:
                    return function(*args, made, **kwargs)
                if name in kwargs:
                    raise TypeError(f"{function.__name__}() got multiple values for argument {name!r}")
                return function(*args, **{**kwargs, name: made})

        return cast("_Function", call)

    return decorate


__all__ = ["context", "socket"]
