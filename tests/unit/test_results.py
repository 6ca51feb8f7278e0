"""`Ok`, `Err`, and the functions that make and sort them."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import doctest
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import ropewalk
from ropewalk import Err, Ok, result


def fails(message: str) -> None:
    raise ValueError(message)


def half(number: int) -> Ok[int] | Err[str]:
    return Ok(number // 2) if number % 2 == 0 else Err(f"{number} is odd")


def test_what_is_held() -> None:
    assert Ok(3).value == 3
    assert Err("no").error == "no"
    assert Ok(3).is_ok()
    assert not Ok(3).is_err()
    assert Err(3).is_err()
    assert not Err(3).is_ok()
    assert (Ok(3).ok(), Ok(3).err(), Err(3).ok(), Err(3).err()) == (3, None, None, 3)


def test_a_match_takes_them_apart() -> None:
    def told(it: ropewalk.Result[int, str]) -> str:
        match it:
            case Ok(value):
                return f"value {value}"
            case Err(error):
                return f"error {error}"

    assert told(Ok(3)) == "value 3"
    assert told(Err("no")) == "error no"


def test_chains_go_on_with_values_and_stop_at_errors() -> None:
    def unwanted(_: object) -> Any:
        raise AssertionError("it was called")

    assert Ok(12).map(lambda n: n + 4).and_then(half).map(str) == Ok("8")
    assert Ok(3).and_then(half).map(unwanted).and_then(unwanted).inspect(unwanted) == Err("3 is odd")
    assert Err(3).map_err(lambda n: n + 1).or_else(lambda n: Ok(n * 10)) == Ok(40)
    assert Ok(3).map_err(unwanted).or_else(unwanted).inspect_err(unwanted) == Ok(3)
    seen: list[object] = []
    assert Ok(1).inspect(seen.append) == Ok(1)
    assert Err(2).inspect_err(seen.append) == Err(2)
    assert seen == [1, 2]


def test_what_does_not_concern_it_is_itself() -> None:
    bad, good = Err(1), Ok(1)
    assert bad.map(str) is bad
    assert bad.and_then(half) is bad
    assert good.map_err(str) is good


def test_what_a_function_raises_goes_on() -> None:
    for chain in (
        Ok(1).map,
        Ok(1).and_then,
        Ok(1).inspect,
        Err(1).map_err,
        Err(1).or_else,
        Err(1).unwrap_or_else,
    ):
        with pytest.raises(ValueError, match="1"):
            chain(fails)


def test_a_step_must_give_a_result() -> None:
    with pytest.raises(TypeError, match="must give an Ok or an Err, not <class 'int'>"):
        Ok(1).and_then(lambda n: n)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="must give"):
        Err(1).or_else(lambda _: None)  # type: ignore[type-var]


def test_unwrapping() -> None:
    assert Ok(3).unwrap() == 3
    assert Err(3).unwrap_err() == 3
    assert (Ok(3).unwrap_or(4), Err(3).unwrap_or(4)) == (3, 4)
    assert (Ok(3).unwrap_or_else(fails), Err(3).unwrap_or_else(lambda n: n + 1)) == (3, 4)
    assert Ok(3).expect("a number") == 3


def test_unwrapping_an_exception_raises_it_with_its_traceback() -> None:
    came = result.from_call(fails, "no")
    with pytest.raises(ValueError, match="no") as caught:
        came.unwrap()
    assert caught.value is came.err()
    assert any(entry.name == "fails" for entry in caught.traceback)


def test_unwrapping_anything_else_raises_unwrap_error() -> None:
    with pytest.raises(ropewalk.UnwrapError, match=r"unwrap\(\) of Err\('no'\)") as caught:
        Err("no").unwrap()
    assert caught.value.error == "no"
    assert caught.value.code == "RW-UNWRAP"
    with pytest.raises(ropewalk.UnwrapError, match=r"unwrap_err\(\) of Ok\(3\)"):
        Ok(3).unwrap_err()


def test_expecting_says_what_was_expected() -> None:
    cause = KeyError("port")
    with pytest.raises(ropewalk.UnwrapError, match="a port: KeyError") as caught:
        Err(cause).expect("a port")
    assert caught.value.__cause__ is cause
    with pytest.raises(ropewalk.UnwrapError, match="a port: 'none'") as caught:
        Err("none").expect("a port")
    assert caught.value.__cause__ is None


def test_equality_and_hashes() -> None:
    assert Ok(1) == Ok(1.0)
    assert Ok(1) != Err(1)
    assert Ok(1) != 1
    assert Err(1) != Err(2)
    assert len({Ok(1), Ok(1), Err(1), Ok(2)}) == 3
    with pytest.raises(TypeError):
        hash(Ok([]))
    nan = float("nan")
    assert Ok(nan) == Ok(nan), "as in a tuple, what is the same object is equal"
    with pytest.raises(ValueError, match="ambiguous"):
        assert Ok(Elementwise()) == Ok(Elementwise())
    with pytest.raises(TypeError):
        sorted([Ok(1), Ok(2)])  # type: ignore[type-var]


def test_they_have_no_truth() -> None:
    for it in (Ok(0), Err(0)):
        with pytest.raises(TypeError, match="is_ok"):
            bool(it)


def test_they_do_not_change_and_have_no_subclasses() -> None:
    for it, name in ((Ok(1), "value"), (Err(1), "error")):
        with pytest.raises(AttributeError):
            setattr(it, name, 2)
        with pytest.raises((AttributeError, TypeError)):
            it.more = 2  # type: ignore[union-attr]
    with pytest.raises(TypeError):
        type("Mine", (Ok,), {})


@pytest.mark.parametrize("kind", [Ok, Err])
def test_they_take_one_argument(kind: Callable[..., Any]) -> None:
    for args, named in (((), {}), ((1, 2), {}), ((), {"value": 1}), ((1,), {"more": 2})):
        with pytest.raises(TypeError, match="one argument"):
            kind(*args, **named)
    assert kind.__new__(kind, 3) == kind(3)  # type: ignore[attr-defined]


def test_they_are_pickled_and_copied() -> None:
    for it in (Ok([1]), Err({"a": 1})):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(it, protocol)) == it
        assert copy.deepcopy(it) == it


def test_representations() -> None:
    assert (repr(Ok("a")), repr(Err(None))) == ("Ok('a')", "Err(None)")
    ring: list[Any] = []
    ring.append(Ok(ring))
    assert repr(ring) == "[Ok([...])]"
    assert str(Ok[int]) == "ropewalk.Ok[int]"
    assert ropewalk.Result[int, str] == Ok[int] | Err[str]
    assert isinstance(Ok(1), Ok | Err)


class Elementwise:
    """Compares as an array does."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth of many is ambiguous")


def test_a_deep_nest_ends_without_overflowing_the_stack() -> None:
    deep: Any = Ok(None)
    for depth in range(200_000):
        deep = (Ok, Err)[depth % 2](deep)
    lists: Any = Ok(None)
    for _ in range(200_000):
        lists = Ok([lists])
    for look in (hash, repr):
        # How deep is too deep is the interpreter's to say.
        with contextlib.suppress(RecursionError):
            look(deep)
    gone: list[int] = []

    class Bottom:
        def __del__(self) -> None:
            gone.append(1)

    nest: Any = Bottom()
    for _ in range(1000):
        nest = Ok(nest)
    del deep, lists, nest
    assert gone == [1]


def test_drops_within_a_drop() -> None:
    gone: list[int] = []

    class Nesting:
        """Ends another nest while the one that it is in ends."""

        def __init__(self, left: int) -> None:
            self.left = left

        def __del__(self) -> None:
            gone.append(self.left)
            if self.left:
                nested(self.left - 1)

    def nested(left: int) -> None:
        it: Any = Nesting(left)
        for _ in range(100):
            it = Ok(it)

    nested(20)
    assert gone == list(range(20, -1, -1))


def test_only_what_can_be_in_a_cycle_is_tracked() -> None:
    assert not gc.is_tracked(Ok(1))
    assert not gc.is_tracked(Err("no"))
    assert gc.is_tracked(Ok([]))
    assert gc.is_tracked(Err(ValueError()))


def test_the_examples_in_their_documentation() -> None:
    ran = 0
    for kind in (Ok, Err):
        for test in doctest.DocTestFinder().find(kind, module=False):
            done = doctest.DocTestRunner().run(test)
            assert not done.failed, test.name
            ran += done.attempted
    assert ran > 40


def test_the_types_do_not_change() -> None:
    with pytest.raises(TypeError, match="immutable"):
        Ok.map = None  # type: ignore[assignment,method-assign]
    assert (Ok.__match_args__, Err.__match_args__) == (("value",), ("error",))
    with pytest.raises(TypeError):
        object.__new__(Ok)


def test_cycles_are_collected() -> None:
    class Node:
        it: Any

    node = Node()
    node.it = Ok(node)
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None


def test_from_call() -> None:
    assert result.from_call(int, "7", base=8) == Ok(7)
    came = result.from_call(fails, "no")
    assert isinstance(came.err(), ValueError)
    with pytest.raises(KeyboardInterrupt):
        result.from_call(raising, KeyboardInterrupt())
    with pytest.raises(SystemExit):
        result.from_call(raising, SystemExit(3))


def test_from_call_takes_the_errors_it_is_told_to() -> None:
    assert isinstance(result.from_call(fails, "no", catch=ValueError).err(), ValueError)
    assert isinstance(result.from_call(fails, "no", catch=(KeyError, ValueError)).err(), ValueError)
    with pytest.raises(ValueError, match="no"):
        result.from_call(fails, "no", catch=KeyError)
    for wrong in (BaseException, KeyboardInterrupt, (ValueError, SystemExit), (), 3, None):
        with pytest.raises(TypeError, match=r"from_call (accepts|needs)"):
            result.from_call(fails, "no", catch=wrong)  # type: ignore[call-overload]


def raising(error: BaseException) -> None:
    raise error


def test_as_result() -> None:
    @result.as_result(ValueError, KeyError)
    def call(error: BaseException | None) -> int:
        """Its text."""
        if error is not None:
            raise error
        return 3

    assert call.__doc__ == "Its text."
    assert call(None) == Ok(3)
    error = KeyError("a")
    assert call(error) == Err(error)
    with pytest.raises(TypeError):
        call(TypeError())
    with pytest.raises(TypeError, match="ValueError"):
        result.as_result()
    for wrong in (3, KeyboardInterrupt, BaseException):
        with pytest.raises(TypeError, match="derive from Exception"):
            result.as_result(wrong)  # type: ignore[arg-type,type-var]


def test_as_result_of_a_coroutine_function() -> None:
    @result.as_result(ValueError)
    async def call(error: BaseException | None) -> int:
        if error is not None:
            raise error
        return 3

    assert asyncio.run(call(None)) == Ok(3)
    error = ValueError("no")
    assert asyncio.run(call(error)) == Err(error)
    with pytest.raises(KeyError):
        asyncio.run(call(KeyError()))


def test_collecting_stops_at_the_first_error() -> None:
    taken: list[int] = []

    def results() -> Any:
        for number in (2, 4, 5, 6):
            taken.append(number)
            yield half(number)

    assert result.collect(results()) == Err("5 is odd")
    assert taken == [2, 4, 5]
    assert result.collect([]) == Ok([])
    assert result.collect(map(half, (2, 4))) == Ok([1, 2])


@pytest.mark.parametrize("sort", [result.collect, result.partition])
def test_what_is_no_result_is_refused(sort: Callable[[Any], object]) -> None:
    class Lookalike:
        value = 1

    for wrong in (1, None, Lookalike()):
        with pytest.raises(TypeError, match="takes results, Ok or Err"):
            sort([Ok(1), wrong])


def test_partition_loses_nothing() -> None:
    assert result.partition(map(half, range(6))) == ([0, 1, 2], ["1 is odd", "3 is odd", "5 is odd"])
