"""`@flow`: a function whose runs survive the end of the process."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import textwrap
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any, Generic, Literal, Never, ParamSpec, TypeVar, cast, overload

from ropewalk._checked import checked_choice
from ropewalk._errors import FlowError

P = ParamSpec("P")
T = TypeVar("T")

#: What happens to a run whose flow has other code than when the run began.
Code = Literal["refuse", "resume", "restart"]

#: The flows of this program by their names. Of functions of one place the last one has the name.
_KNOWN: weakref.WeakValueDictionary[str, Flow[..., Any]] = weakref.WeakValueDictionary()


class Flow(Generic[P, T]):
    """A function whose runs survive the end of the process; `flow` makes it, and `Flows.start` runs it.

    A call of it runs the function as a part of the flow that is running.
    """

    def __init__(self, function: Callable[P, T], name: str | None, code: Code) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = function.__qualname__ if name is None else name
        self._code: Code = code
        # Now, before the file is another one.
        try:
            self._source: str | None = inspect.getsource(function)
        except (OSError, TypeError, SyntaxError):
            self._source = None
        self._digest: bytes | None = None
        place = _other_place(self._name, function)
        if place is not None:
            raise ValueError(
                f"{_place(function)} and {place} are both flows of the name {self._name!r}, by which a run finds its "
                f"code again; give one of them another name, as in @flow(name=...)"
            )
        _KNOWN[self._name] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the function inside of a running flow, as a part of it."""
        from ropewalk.flows._steps import execution

        if execution() is None:
            raise FlowError(
                f"{self._name} is a flow: start it with flows.start({self._name}, ...). To try its code without a "
                f"journal call {self._name}.function(...), whose steps then are plain calls"
            )
        return self._function(*args, **kwargs)

    def function(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the function without a journal: each step is a plain call, a sleep sleeps. For tests."""
        from ropewalk.flows._steps import plainly

        with plainly():
            return self._function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The name under which its runs are recorded."""
        return self._name

    @property
    def code(self) -> Code:
        """What happens to a run that began with other code."""
        return self._code

    def __repr__(self) -> str:
        return f"<Flow {self._name}>"

    def __reduce__(self) -> str:
        return self._function.__qualname__


@overload
def flow(function: Callable[P, T], /) -> Flow[P, T]: ...
@overload
def flow(*, name: str | None = None, code: Code = "refuse") -> Callable[[Callable[P, T]], Flow[P, T]]: ...
def flow(function: Any = None, /, *, name: str | None = None, code: Code = "refuse") -> Any:
    """Makes a flow of a function: a decorator, with or without arguments.

    The function runs again from its beginning when its run goes on after a crash or a long wait. The steps that have
    finished return their recorded results at once. So whatever the function does itself should be quick and without
    effect, and what it passes to its steps should come from its arguments and from other steps: read the clock, random
    numbers and files in a step.

    Args:
        function: a plain function. Its arguments are recorded by pickle.
        name: the name of the flow in the journal; by default the function's.
        code: what happens to a run that has not ended if the function's code is another one than when the run began:
            ``"refuse"`` leaves the run as it is, with `FlowCodeChanged`; ``"resume"`` goes on with the new code behind
            the finished steps; ``"restart"`` forgets the steps and begins anew. Comments and the layout of the code do
            not count; nor do the functions that it calls.

    Raises:
        TypeError: it is no function, or an asynchronous one.
        ValueError: another function is a flow of this name.
    """
    checked_choice("code", code, ("refuse", "resume", "restart"))
    if name is not None and (not isinstance(cast("Any", name), str) or not name):
        raise TypeError(f"name must be text, not {name!r}")

    def decorate(function: Callable[P, T]) -> Flow[P, T]:
        _check(function)
        return Flow(function, name, code)

    return decorate if function is None else decorate(function)


def known(name: str) -> Flow[..., Any] | None:
    """Returns the program's flow of a name."""
    return _KNOWN.get(name)


def digest_of_code(flow: Flow[..., Any]) -> bytes:
    """Returns a digest of the code of a flow's function, which comments and layout do not change."""
    if flow._digest is None:
        flow._digest = _digest(flow)
    return flow._digest


def _digest(flow: Flow[..., Any]) -> bytes:
    from ropewalk._keys import key_of

    try:
        tree = None if flow._source is None else ast.parse(textwrap.dedent(flow._source))
    except SyntaxError:
        tree = None
    if tree is None:
        return key_of(("code", _parts(flow._function.__code__)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return key_of(("source", ast.unparse(tree)))


def _parts(code: CodeType) -> object:
    return (
        code.co_code,
        [_parts(one) if isinstance(one, CodeType) else one for one in code.co_consts],
        code.co_names,
    )


def _check(function: object) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"a flow must be a plain function, and {_place(function)} is an asynchronous one. Its steps run on pools; "
            f"an event loop awaits the whole run: await flows.start(...)"
        )
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"a flow must be a plain function, and {_place(function)} is a generator")
    if not inspect.isfunction(function):
        _refuse(function)


def _refuse(function: object) -> Never:
    hint = " (a flow again)" if isinstance(function, Flow) else ""
    raise TypeError(f"a flow must be a plain function, not {function!r}{hint}")


def _other_place(name: str, function: Callable[..., Any]) -> str | None:
    """Returns the place of another function that is the flow of a name; `None` if there is none.

    A notebook's cell that runs again, and a module that is loaded again, make a function of the same place.
    """
    mine, place = _place(function), _place_of(name)
    if place not in (None, mine):
        # One that nothing needs any more may be a part of a cycle.
        gc.collect()
        place = _place_of(name)
    return None if place == mine else place


def _place_of(name: str) -> str | None:
    found = known(name)
    return None if found is None else _place(found._function)


def _place(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
