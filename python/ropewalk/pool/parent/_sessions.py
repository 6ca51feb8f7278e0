"""`Session`: a view of a pool whose tasks find the state that was made for them in their worker."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from types import CellType, CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, ParamSpec, Self, TypeVar, cast

from ropewalk._checked import checked_choice, checked_limit, refuse_unknown_argument
from ropewalk._errors import SessionMissing, failed
from ropewalk.pool.parent._options import TaskSettings, Unset
from ropewalk.pool.parent._tasks import PoolOptions
from ropewalk.pool.wire._sessions import LocalSession

if TYPE_CHECKING:
    from ropewalk import _core
    from ropewalk.pool.parent._future import Future
    from ropewalk.pool.parent._pool import Pool
    from ropewalk.pool.parent._stream import Stream

P = ParamSpec("P")
T = TypeVar("T")

Mode = Literal["prefer", "queue", "fail"]
MODES = ("prefer", "queue", "fail")

#: Arguments of other interfaces, and what `Pool.session` has instead.
_SPELLINGS = {
    "initializer": "init=",
    "setup": "init=",
    "factory": "init=",
    "initargs": "args=",
    "on_busy": "mode=",
    "policy": "mode=",
    "timeout": "ttl=",
    "idle_timeout": "ttl=",
    "max_idle": "ttl=",
}


def refuse_unknown_setting(unknown: Mapping[str, object]) -> Never:
    """Raises for an argument that `Pool.session` does not have, and names the one that it has instead.

    Raises:
        TypeError: always.
    """
    refuse_unknown_argument("session", unknown, ("key", "init", "args", "mode", "ttl"), _SPELLINGS)


#: Sessions that may be added before those without a state are looked for.
_SPARE = 64


def check_kind(pool: Pool, what: str) -> None:
    """Raises if the workers of a pool keep no states.

    Raises:
        ValueError: the pool's kind has no sessions.
    """
    if not pool._engine.keeps_states:
        raise ValueError(f"{what} needs a pool whose workers keep states; one of kind {pool.kind!r} does not")


def noting(core: _core.SessionBase) -> Callable[[], int]:
    """Returns what a thread calls when it has made a session's state; it gives the state's number.

    It does not keep the session: a call in the queue may be dropped where the end of its session would be a deadlock.
    """
    there = weakref.ref(core)

    def made() -> int:
        core = there()
        return 1 if core is None else core.made_here()

    return made


class Opened:
    """A session of a pool, as its views and the pool's table hold it."""

    def __init__(
        self,
        pool: Pool,
        key: str | int,
        init: Callable[..., object] | None,
        args: tuple[Any, ...],
        mode: Mode,
        ttl: float | None,
    ) -> None:
        self.key = key
        self.init = init
        self.args = args
        self.mode: Mode = mode
        self.ttl = ttl
        self.is_closed = False
        if pool._fallback is not None:
            pool._fallback.check_state(init, args, {})
        name = key if isinstance(key, str) else repr(key)
        self.core = pool._open_session((name, mode, ttl, None), init, (args, {}, key), pool._settings)
        self.local = (
            None
            if pool._engine.encodes
            else LocalSession(key, init, args, {}, once=False, made=noting(self.core))
        )

    def check_like(self, **asked: object) -> None:
        """Checks that a session that is asked for by the same key has the same settings, where they are given.

        Raises:
            ValueError: a setting differs.
        """
        ours = {"init": self.init, "args": self.args, "mode": self.mode, "ttl": self.ttl}
        for name, value in asked.items():
            if isinstance(value, Unset):
                continue
            same = _makes_the_same(ours[name], value) if name == "init" else _is_same(ours[name], value)
            if same:
                continue
            hint = "Give equal settings for equal keys, or close() the session first."
            if name == "init":
                hint = f"Define it once, or call pool.session({self.key!r}) without it, or close() the session first."
            raise ValueError(
                f"the pool has a session {self.key!r} with {name}={ours[name]!r}, and it is asked for with "
                f"{name}={value!r}. {hint}"
            )


def _is_same(one: object, other: object) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # Arrays have no truth value, for instance.
        return False


def _makes_the_same(one: object, other: object, compared: frozenset[tuple[int, int]] = frozenset()) -> bool:
    """Whether two callables are the same by what they are made of.

    A lambda, a partial, or a function of a notebook's cell is another object each time that its line runs.

    Args:
        one: a callable.
        other: another one.
        compared: the ids of the pairs whose comparison needs this one; a function may refer to itself.
    """
    pair = id(one), id(other)
    if pair in compared or _is_same(one, other):
        return True
    if type(one) is partial and type(other) is partial:
        return (
            _makes_the_same(one.func, other.func, compared | {pair})
            and _is_same(one.args, other.args)
            and _is_same(one.keywords, other.keywords)
        )
    if not isinstance(one, FunctionType) or not isinstance(other, FunctionType):
        return False
    return (
        (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
        and one.__globals__ is other.__globals__
        and _is_same_code(one.__code__, other.__code__)
        and _is_same(one.__defaults__, other.__defaults__)
        and _is_same(one.__kwdefaults__, other.__kwdefaults__)
        and all(
            _is_same_cell(ours, theirs, compared | {pair})
            for ours, theirs in zip(one.__closure__ or (), other.__closure__ or (), strict=True)
        )
    )


#: What makes a code object do what it does: not its file and its lines, which differ between two runs of one cell.
_OF_CODE = attrgetter(
    *("co_code", "co_exceptiontable", "co_flags", "co_names", "co_varnames", "co_freevars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)


def _is_same_code(one: CodeType, other: CodeType) -> bool:
    return bool(_OF_CODE(one) == _OF_CODE(other)) and _is_same_constant(one.co_consts, other.co_consts)


def _is_same_constant(one: object, other: object) -> bool:
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return _is_same_code(one, other)
    if type(one) is not type(other):  # 1, 1.0 and True are equal.
        return False
    if isinstance(one, tuple):
        pair = cast("tuple[tuple[object, ...], tuple[object, ...]]", (one, other))
        return len(pair[0]) == len(pair[1]) and all(map(_is_same_constant, *pair))
    if isinstance(one, frozenset):
        sets = cast("tuple[frozenset[object], frozenset[object]]", (one, other))
        return sorted(map(repr, sets[0])) == sorted(map(repr, sets[1]))
    # 0.0 and -0.0 are equal, too.
    return one == other and repr(one) == repr(other)


def _is_same_cell(one: CellType, other: CellType, compared: frozenset[tuple[int, int]]) -> bool:
    try:
        return one is other or _makes_the_same(one.cell_contents, other.cell_contents, compared)
    except ValueError:  # A cell may be empty.
        return False


class SessionTable:
    """The sessions of a pool by their keys."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Opened] = {}
        self._kept = 0

    def open(
        self,
        pool: Pool,
        key: object,
        init: Callable[..., object] | Unset | None,
        args: Iterable[Any],
        mode: Mode | Unset,
        ttl: float | Unset | None,
    ) -> Session:
        check_kind(pool, "a session")
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise TypeError(f"key must be a str or an int, not {key!r}")
        if not isinstance(init, Unset) and init is not None and not callable(init):
            raise TypeError(f"init must be a callable or None, not {init!r}")
        if isinstance(args, (str, bytes, bytearray)) or not hasattr(args, "__iter__"):
            raise TypeError(f"args must be a tuple of the arguments of init, not {args!r}")
        given = tuple(args)
        if given and (init is None or isinstance(init, Unset)):
            raise TypeError("args are the arguments of init, and there is no init")
        if not isinstance(mode, Unset):
            checked_choice("mode", mode, MODES)
        limit = ttl if isinstance(ttl, Unset) else checked_limit("ttl", ttl)
        if isinstance(limit, float) and not pool._engine.encodes:
            raise ValueError("ttl needs worker processes: the threads of a pool share a session's state")
        if pool._engine.closed:
            # It raises the error of a submission.
            pool._submit_plainly(object)
        opened = self._known.get(key)
        if isinstance(init, Unset):
            if opened is None:
                raise failed(SessionMissing, f"{pool._name} has no session {key!r}")
            opened.check_like(mode=mode, ttl=limit)
            return _view_of(pool, opened, pool._settings)
        mode = "prefer" if isinstance(mode, Unset) else mode
        limit = None if isinstance(limit, Unset) else limit
        if opened is None:
            self._prune()
            # Another thread may have been faster.
            opened = self._known.setdefault(key, Opened(pool, key, init, given, mode, limit))
        opened.check_like(init=init, args=given, mode=mode, ttl=limit)
        return _view_of(pool, opened, pool._settings)

    def close(self, opened: Opened) -> None:
        opened.is_closed = True
        if self._known.get(opened.key) is opened:
            del self._known[opened.key]
        opened.core.close()
        opened.local = None

    def _prune(self) -> None:
        """Forgets the sessions whose state was dropped and that the program does not hold."""
        if len(self._known) < 2 * self._kept + _SPARE:
            return
        for key in list(self._known):
            opened = self._known.get(key)
            if opened is None or not opened.core.is_cold:
                continue
            there = weakref.ref(opened)
            # Another thread may forget sessions, too.
            if self._known.pop(key, None) is None:
                continue
            del opened
            opened = there()
            if opened is not None:
                self._known.setdefault(key, opened)
        self._kept = len(self._known)


#: Guards the making of a pool's table; held for an instruction or two.
_MAKING = threading.Lock()


def table_of(pool: Pool) -> SessionTable:
    """Returns the sessions of a pool."""
    if pool._sessions is None:
        with _MAKING:
            if pool._sessions is None:
                pool._sessions = SessionTable()
    return pool._sessions


class Session(PoolOptions):
    """A session of a pool; only `Pool.session` makes one.

    Its tasks find the state that ``init`` has made in their worker: `current_session().state`. It is an executor like
    the pool itself. Leaving its ``with`` block closes the session, not the pool.

    Examples:
        >>> import ropewalk
        >>> with ropewalk.Pool(2, kind="thread") as pool, pool.session("numbers", list) as session:
        ...     session.submit(lambda: ropewalk.current_session().state).result()
        []
    """

    def __init__(self, pool: Pool, opened: Opened, settings: TaskSettings) -> None:
        """For `Pool.session` alone."""
        super().__init__(pool, settings._replace(session=opened.core.number))
        self._opened = opened
        if settings is pool._settings and isinstance(settings.retries, int) and opened.local is None:
            # The compiled half knows these settings already: it is what `submit` comes to.
            vars(self)["submit"] = opened.core.submit

    @property
    def key(self) -> str | int:
        """The key by which the pool knows the session."""
        return self._opened.key

    @property
    def mode(self) -> Mode:
        """What a task does while the session's worker is busy, as in `Pool.session`."""
        return self._opened.mode

    @property
    def generation(self) -> int:
        """The number of the newest state: 0 before the first; it grows each time that the state is made anew."""
        return self._opened.core.generation

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._opened.is_closed

    def close(self) -> None:
        """Accepts no more tasks; when those that were accepted are done, the state is dropped.

        The state's ``close()``, or else its ``__exit__``, is called in its worker, if it has one.
        """
        table_of(self._pool).close(self._opened)

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None
    ) -> None:
        """Closes the session, as `close` does; the pool goes on, and nothing is waited for or cancelled."""
        self.close()

    def options(self, **settings: Any) -> Session:
        """Returns a view of the session that submits tasks with other settings; see `Pool.options`."""
        view = super().options(**settings)
        return _view_of(self._pool, self._opened, view._settings)

    def __enter__(self) -> Self:
        """Returns the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the session."""
        self.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the session."""
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"generation={self.generation}"
        return f"<ropewalk.Session {self.key!r} of {self._pool._name} mode={self.mode} {state}>"


class _LocalSessionView(Session):
    """A session of a thread pool: its state is an object of this process."""

    def _within(self, fn: Callable[..., T]) -> Callable[..., T]:
        local = self._opened.local
        if local is None:  # It was closed: the submission reports that.
            return fn
        return partial(local.run, fn)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(self._within(fn), *args, **kwargs)

    # The methods below give it functions that have the state already.
    _submit_plainly = Session.submit

    def submit_nowait(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit_nowait(self._within(fn), *args, **kwargs)

    async def submit_async(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return await super().submit_async(self._within(fn), *args, **kwargs)

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await super().run(self._within(fn), *args, **kwargs)

    def stream(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Stream[Any]:
        local = self._opened.local
        if local is None or not callable(fn):
            return super().stream(fn, *args, **kwargs)
        return super().stream(partial(local.stream, fn), *args, **kwargs)

    async def stream_async(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Stream[Any]:
        local = self._opened.local
        if local is None or not callable(fn):
            return await super().stream_async(fn, *args, **kwargs)
        return await super().stream_async(partial(local.stream, fn), *args, **kwargs)

    def _runs(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self._within(fn)


def _view_of(pool: Pool, opened: Opened, settings: TaskSettings) -> Session:
    kind = Session if pool._engine.encodes else _LocalSessionView
    return kind(pool, opened, settings)
