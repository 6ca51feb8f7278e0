"""`@task`: a function that works on a draft of the state, and the contract that says on which parts."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from ropewalk._checked import checked_count
from ropewalk._errors import ContractViolation, StateError
from ropewalk.state._contract import Contract
from ropewalk.state._form import native_rule
from ropewalk.state._paths import Path
from ropewalk.state._shape import Shape

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

#: What happens at an access that the contract does not declare: an error, a line that is printed, or nothing.
Strict: TypeAlias = Literal[True, False, "warn"]
Paths: TypeAlias = "Iterable[Path[Any] | str]"
#: What `Store.run_all` takes: a task, or a tuple of a task and its arguments. A checker infers it, but for lists that
#: have both and stand in a variable: `jobs: list[Job[Any]] = [free, (pay, "ann", 5)]`.
Job: TypeAlias = "Callable[..., R] | tuple[Callable[..., R], *tuple[Any, ...]]"


class Draft(Generic[S]):
    """The draft of a state `S`, in annotations of tasks: `def pay(b: Draft[Bank], n: int) -> None`.

    To a type checker its attributes are `Any`, because a draft of a record has other types than the record: a map of
    it can be assigned to. It makes no drafts; `Store.run` and `Store.transaction` give them.
    """

    def __init__(self, *_args: object) -> None:
        """Refuses: stores make drafts."""
        raise TypeError(
            "a draft is made by a store: store.run(task, ...) gives one to the task, and in a block of with "
            "store.transaction() as tx it is tx.draft"
        )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...
        def __delattr__(self, name: str) -> None: ...
        def __getitem__(self, key: Any) -> Any: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __delitem__(self, key: Any) -> None: ...


class Task(Generic[P, R]):
    """A function that works on a draft, with its contract; `task` makes it, and `Store.run` runs it.

    A call of it runs the function with what it is given: a draft, or any object that has the attributes that it
    touches. So a test needs no store. The parameters `P` are those behind the draft.
    """

    __wrapped__: Callable[..., R]
    __name__: str

    def __init__(
        self,
        function: Callable[Concatenate[Any, P], R],
        contract: Contract | None,
        strict: Strict,
        label: str | None,
        retries: int | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        #: What it reads and writes; `None` allows everything.
        self.contract = contract
        #: What happens at an access that the contract does not declare.
        self.strict: Strict = strict
        #: Its name in the audit, and in errors.
        self.label: str = function.__qualname__ if label is None else label
        #: How often it runs again after a conflict before it locks its paths; `None` leaves that to the store.
        self.retries = retries
        self._rules: weakref.WeakKeyDictionary[Shape, Any] = weakref.WeakKeyDictionary()
        #: How stores send it to workers. It goes with the task, and each entry with its store.
        self._shipped: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def __call__(self, draft: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function with a draft, or with any object in its place."""
        return self._function(draft, *args, **kwargs)

    def rule_for(self, shape: Shape) -> Any:
        """Returns the compiled rule for states of this shape; without `strict=True` it allows what the zones allow.

        Raises:
            StateError: the contract is of another state.
            ContractViolation, NoSuchPath: the contract has texts, and this state no such place, or one of a zone that
                is not written.
        """
        rule = self._rules.get(shape)
        if rule is None:
            contract = self.contract if self.strict is True else None
            try:
                rule = native_rule(shape, contract)
            except ContractViolation as error:
                error.task = self.label
                raise
            except StateError as error:
                error.add_note(f"this is the contract of the task {self.label}")
                raise
            self._rules[shape] = rule
        return rule

    def __repr__(self) -> str:
        return f"<Task {self.label}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rules": None, "_shipped": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._rules = weakref.WeakKeyDictionary()
        self._shipped = weakref.WeakKeyDictionary()

    def __reduce__(self) -> Any:
        # The function's own name stands for the task, so that pickle would not take the function itself.
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is self:
            return self.__qualname__
        return _made_again, (self._function, self.contract, self.strict, self.label, self.retries)

    if TYPE_CHECKING:
        __qualname__: str


def bound(task: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the task of a `functools.partial`, and the arguments that it gives by name; any other task as it is.

    Raises:
        TypeError: it gives arguments by position, the first of which would stand where the draft does.
    """
    given = task
    if not isinstance(task, functools.partial):
        return given, {}
    if given.args:
        raise TypeError(
            f"{given!r} gives arguments by position, and the first of a task is its draft. Give them by name, or "
            f"behind the task: store.run(task, ...), and (task, ...) as a job of run_all"
        )
    return given.func, given.keywords


def _made_again(
    function: Callable[..., Any], contract: Contract | None, strict: Strict, label: str, retries: int | None
) -> Task[..., Any]:
    return Task(function, contract, strict, label, retries)


@overload
def task(function: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    reads: Paths = ...,
    writes: Paths = ...,
    strict: Strict = ...,
    label: str | None = ...,
    retries: int | None = ...,
) -> Callable[[Callable[Concatenate[Any, P], R]], Task[P, R]]: ...
def task(
    function: Any = None,
    /,
    *,
    reads: Any = None,
    writes: Any = None,
    strict: Strict = True,
    label: str | None = None,
    retries: int | None = None,
) -> Any:
    """Makes a task of a function: a decorator, with or without arguments.

    Args:
        function: a plain function whose first parameter is the draft.
        reads: paths that it reads, of `paths(State)`, or texts for a dict-shaped state. Without `reads` and `writes`
            there is no contract, and it may touch everything; so it runs in parallel with nothing. `reads=[]` is the
            contract of a task that reads nothing.
        writes: paths that it writes, and so may read.
        strict: what happens at an access that is not declared: `True` raises `ContractViolation`, `"warn"` prints the
            contract that the task should have, and `False` lets it pass. With the last two the contract only
            schedules, and conflicts are found when the transaction commits.
        label: its name in the audit and in errors; by default the function's.
        retries: how often it runs again after a conflict before it locks what it touches.

    Raises:
        TypeError: it is no plain function, or has no parameter for the draft.
        ValueError: `strict` is none of the three, or `retries` is negative.
        ContractViolation, NoSuchPath, StateError: the contract is wrong, as `Contract` reports.
    """
    if not isinstance(cast("object", strict), bool) and strict != "warn":
        raise ValueError(f"strict must be True, False or 'warn', not {strict!r}")
    if retries is not None:
        retries = checked_count("retries", retries, 0)
    if label is not None and (not isinstance(cast("Any", label), str) or not label):
        raise TypeError(f"label must be text, not {label!r}")

    def decorate(function: Callable[Concatenate[Any, P], R]) -> Task[P, R]:
        _check(function)
        contract = None
        if reads is not None or writes is not None:
            try:
                contract = Contract(() if reads is None else reads, () if writes is None else writes)
            except ContractViolation as error:
                error.task = function.__qualname__ if label is None else label
                raise
        return Task(function, contract, strict, label, retries)

    return decorate if function is None else decorate(function)


def _check(function: Any) -> None:
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(function, Task):
        raise TypeError(f"{name} is a task already")
    if not isinstance(function, FunctionType):
        raise TypeError(f"a task must be a plain function, not {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"a task must be a plain function, and {name} is an asynchronous one. A transaction runs without a pause; "
            f"an event loop awaits the whole task: await store.arun(...)"
        )
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"a task must be a plain function, and {name} is a generator")
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    ):
        raise TypeError(f"the first parameter of a task is the draft, and {name} has none that is positional")
