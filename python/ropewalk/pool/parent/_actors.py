"""`Actor`: an object that lives in one worker, and whose methods are tasks."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never, ParamSpec, Self, TypeVar, cast, overload

from ropewalk._checked import checked_count
from ropewalk._errors import EncodeError
from ropewalk.pool.parent._sessions import check_kind, noting
from ropewalk.pool.parent._stream import Stream
from ropewalk.pool.wire._functions import Renamed
from ropewalk.pool.wire._sessions import LocalSession, call_method, touch

if TYPE_CHECKING:
    from ropewalk import _core
    from ropewalk.pool.parent._future import Future
    from ropewalk.pool.parent._options import TaskSettings
    from ropewalk.pool.parent._pool import Pool

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")

_NUMBERS = itertools.count()


class _Home:
    """Where an actor's calls go. Its methods hold this and not the handle, which keeps them."""

    __slots__ = ("cls", "core", "is_closed", "local", "name", "pool", "settings")

    def __init__(
        self, pool: Pool, cls: type, name: str, core: _core.SessionBase, settings: TaskSettings
    ) -> None:
        self.pool = pool
        self.cls = cls
        self.name = name
        self.core = core
        self.settings = settings
        self.is_closed = False
        #: The object itself, in a thread pool.
        self.local: LocalSession | None = None

    def caller_of(self, name: str) -> Callable[..., Any]:
        """Returns what a task calls, with a method's name as its first argument."""
        return self._here(_caller_of(self.cls, name))

    def maker(self) -> Callable[..., Any]:
        """Returns what the first task calls, which makes the object."""
        return self._here(_named(self.cls, "__init__", touch))

    def _here(self, caller: Renamed) -> Callable[..., Any]:
        return caller if self.local is None else partial(self.local.run, caller)

    def __repr__(self) -> str:
        if self.is_closed or self.pool._engine.closed:
            state = "closed"
        else:
            state = f"generation={self.core.generation}" if self.core.lost() is None else "died"
        return f"<ropewalk.Actor {self.name} of {self.pool._name} {state}>"


class Actor(Generic[C]):
    """A handle to an object that lives in one worker; only `Pool.actor` makes one.

    Calling a method of it returns a `Future`, which can be awaited. The methods run one at a time, in the order of
    their submission. `close`, the end of a ``with`` block, or the end of the last reference to the handle drops the
    object when the calls that were accepted are done.

    Examples:
        >>> import collections
        >>> import ropewalk
        >>> with ropewalk.Pool(2) as pool, pool.actor(collections.Counter) as words:
        ...     _ = words.update(["rope", "walk", "rope"])
        ...     words.most_common(1).result()
        [('rope', 2)]
    """

    _cls: type[C]
    _name: str
    _core: _core.SessionBase
    _home: _Home

    def __init__(
        self, pool: Pool, cls: type[C], args: tuple[Any, ...], kwargs: dict[str, Any], max_restarts: int
    ) -> None:
        """For `Pool.actor` alone."""
        check_kind(pool, "an actor")
        if not isinstance(cast("object", cls), type):
            raise TypeError(f"actor needs a class, not {cls!r}")
        if pool._fallback is not None:
            pool._fallback.check_state(cls, args, kwargs)
        restarts = checked_count("max_restarts", max_restarts, 0, 2**32 - 1)
        name = f"{cls.__qualname__}-{next(_NUMBERS)}"
        # A call that is run again would not be in order.
        settings = pool._settings._replace(retries=0, priority=0, deadline=None)
        core = pool._open_session((name, "queue", None, restarts), cls, (args, kwargs, name), settings)
        home = _Home(pool, cls, name, core, settings._replace(session=core.number))
        # By its own dict: see `__setattr__`.
        vars(self).update(_cls=cls, _name=name, _core=core, _home=home)
        if not pool._engine.encodes:
            self._home.local = LocalSession(name, cls, args, kwargs, once=True, made=noting(self._core))
        # The object is made now, not at the first call.
        self._core.submit(self._home.maker())

    @overload
    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Future[Any]: ...
    @overload
    def call(
        self,
        method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Future[T]: ...
    @overload
    def call(
        self, method: Callable[Concatenate[C, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]: ...
    def call(self, method: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls a method: also one whose name the handle itself uses, such as ``close``.

        Args:
            method: its name, or the method as the class has it, ``Account.deposit``; type checkers then know its
                parameters and its result.
            args: its arguments by position.
            kwargs: its arguments by name.

        Raises:
            TypeError: it is neither a name nor a method of the actor's class.
        """
        if isinstance(method, str):
            return self._core.submit(self._home.caller_of(method), method, *args, **kwargs)
        name: object = getattr(method, "__name__", None)
        if not isinstance(name, str) or getattr(self._cls, name, None) != method:
            raise TypeError(
                f"call needs a method of the class {self._cls.__qualname__}, or the name of one, not {method!r}"
            )
        return self._core.submit(self._home.caller_of(name), name, *args, **kwargs)

    def __getattr__(self, name: str) -> ActorMethod:
        """Returns a method that the class got after the first handle was made, or raises `AttributeError`."""
        if name.startswith("_") or "_cls" not in vars(self):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )
        cls = self._cls
        found = getattr(cls, name, None)
        if not callable(found) and not hasattr(cls, "__getattr__"):
            what = "no method" if found is None else "an attribute, but no method"
            raise AttributeError(
                f"the class {cls.__qualname__} of this actor has {what} {name!r}. The object lives in a worker, "
                "and only its methods can be called from here.",
                name=name,
                obj=self,
            )
        return _method_of(self, name)

    # Not for type checkers, which would take every attribute for one that can be set.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            """Raises `AttributeError`: the object is in a worker."""
            raise self._no_change("set", name)

        def __delattr__(self, name: str) -> None:
            """Raises `AttributeError`: the object is in a worker."""
            raise self._no_change("deleted", name)

    def _no_change(self, what: str, name: str) -> AttributeError:
        cls = self._cls.__qualname__
        return AttributeError(
            f"the attribute {name!r} of an actor cannot be {what} from here: the object lives in a worker. Write a "
            f"method of the class {cls} that does so, and call that.",
            name=name,
            obj=self,
        )

    @property
    def generation(self) -> int:
        """The number of the object: it grows each time that the object is made again."""
        return self._core.generation

    def close(self) -> None:
        """Accepts no more calls; when those that were accepted are done, the object is dropped.

        The object's own ``close()``, or else its ``__exit__``, is called in its worker, if it has one.
        """
        self._core.close()
        self._home.is_closed = True
        # In a thread pool the object ends with its last reference.
        self._home.local = None
        for name in [name for name, value in vars(self).items() if isinstance(value, ActorMethod)]:
            vars(self).pop(name, None)

    def __enter__(self) -> Self:
        """Returns the actor itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the actor."""
        self.close()

    async def __aenter__(self) -> Self:
        """Returns the actor itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the actor."""
        self.close()

    def __reduce__(self) -> Never:
        """Raises `EncodeError`: calls go through the pool, which is in this process."""
        raise EncodeError(
            f"the actor {self._name} cannot be sent to a worker process: its calls go through this process's pool. "
            "Call its methods here, and pass their results to the task."
        )

    def __repr__(self) -> str:
        return repr(self._home)


class ActorMethod(partial["Future[Any]"]):
    """A method of an actor: calling it submits a task, and returns its `Future`."""

    __slots__ = ("_home",)

    _home: _Home

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submits a call of the method, as calling it does."""
        return self(*args, **kwargs)

    def stream(self, *args: Any, **kwargs: Any) -> Stream[Any]:
        """Calls a generator method, and returns an iterator over its items; see `Pool.stream`.

        Other calls of the actor wait until the stream has ended.
        """
        home, name = self._home, self.args[-1]
        made: Stream[Any] = Stream()
        local, caller = home.local, _caller_of(home.cls, name)
        if local is None:
            made._start(home.pool, caller, (name, *args), kwargs, home.settings, True)
        else:
            made._start(home.pool, partial(local.stream, caller), (name, *args), kwargs, home.settings, True)
        return made

    def __repr__(self) -> str:
        return f"<method {self.args[-1]} of {self._home!r}>"


def _method_of(actor: Actor[Any], name: str) -> ActorMethod:
    method = ActorMethod(actor._core.submit, actor._home.caller_of(name), name)
    method._home = actor._home
    return method


#: What calls each method of each class.
_CALLERS: weakref.WeakKeyDictionary[type, dict[str, Renamed]] = weakref.WeakKeyDictionary()


def _caller_of(cls: type, name: str) -> Renamed:
    """Returns what calls a method, under the method's name; for names that the class does not have there is one."""
    # An object may answer to any number of names.
    name = name if hasattr(cls, name) else "__getattr__"
    callers = _CALLERS.get(cls) or _CALLERS.setdefault(cls, {})
    return callers.get(name) or callers.setdefault(name, _named(cls, name, call_method))


def _named(cls: type, name: str, call: Callable[..., Any]) -> Renamed:
    return Renamed(call, cls.__module__, f"{cls.__qualname__}.{name}")


class _Method:
    """Gives a handle's class a method of the object's class: to find it there costs less than `__getattr__`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, actor: Actor[Any] | None, owner: type) -> ActorMethod | Self:
        if actor is None:
            return self
        # The next look finds it in the handle itself.
        method = vars(actor)[self._name] = _method_of(actor, self._name)
        return method


#: The class of the handles to the objects of each class.
_HANDLES: weakref.WeakKeyDictionary[type, type[Actor[Any]]] = weakref.WeakKeyDictionary()


def make_actor(
    pool: Pool, cls: type[C], args: tuple[Any, ...], kwargs: dict[str, Any], max_restarts: int
) -> Actor[C]:
    """Makes an actor for `Pool.actor`.

    Raises:
        TypeError, ValueError: an argument is invalid.
        EncodeError: the class or its arguments cannot be pickled.
    """
    handle = _HANDLES.get(cls) if isinstance(cast("object", cls), type) else Actor
    if handle is None:
        names = [name for name in dir(cls) if not name.startswith("_") and not hasattr(Actor, name)]
        methods = {name: _Method(name) for name in names if callable(getattr(cls, name, None))}
        handle = type("Actor", (Actor,), methods | {"__module__": __name__, "__doc__": Actor.__doc__})
        _HANDLES[cls] = handle
    return cast("Actor[C]", handle(pool, cls, args, kwargs, max_restarts))
