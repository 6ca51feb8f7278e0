"""Types of the program's main module other than classes: of typing, of ctypes, and sentinels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.unit.test_main_classes import run_program

PROGRAM = """
import ctypes, dataclasses, inspect, sys, typing
import ropewalk
{source}
def seen(*given):
    return {seen}
with ropewalk.Pool(1, kind="process") as pool:
    expected = seen({given})
    for turn in range(2):
        result = pool.submit(seen, {given}).result(60)
        assert repr(result) == repr(expected), (turn, result, expected)
    assert repr(pool.submit(lambda: seen({given})).result(60)) == repr(expected)
with ropewalk.Pool(1, kind="process") as pool:
    assert repr(list(pool.map(seen, {mapped}))) == repr([seen(one) for one in {mapped}])
print("done")
"""

#: What the program has, what is asked on both sides, and what is handed over.
CASES: dict[str, tuple[str, str, str]] = {
    "typed dicts": (
        """
class Row(typing.TypedDict):
    a: int
class Wide(Row, total=False):
    b: "str"
T = typing.TypeVar("T")
class Box(typing.TypedDict, typing.Generic[T]):
    item: T
def fill(row: Row) -> Wide: return Wide(a=row["a"], b="x")
        """,
        "(fill({'a': 1}), Row(a=3), sorted(Wide.__required_keys__), Wide.__total__, typing.get_type_hints(Row),"
        " Row.__orig_bases__, Box[int], typing.get_type_hints(Wide))",
        "Row(a=1)",
    ),
    "new types": (
        """
User = typing.NewType("User", int)
class Outer:
    Inner = typing.NewType("Outer.Inner", User)
    def get(self, user: User) -> Inner: return Outer.Inner(user)
Users = list[User]
def check(user: User, default: Users = ()) -> Users: return [User(user)]
        """,
        "(check(1), given[0] is User, Outer.Inner.__supertype__ is User, Users.__args__[0] is User, Outer().get(4),"
        " check.__annotations__['user'] is User, User.__name__, User.__module__, typing.get_type_hints(check),"
        " typing.get_type_hints(Outer.get)['return'] is Outer.Inner)",
        "User",
    ),
    "parameters": (
        """
P, R = typing.ParamSpec("P"), typing.TypeVar("R", bound="Limit", covariant=True)
Ts = typing.TypeVarTuple("Ts")
K = typing.TypeVar("K", int, str)
class Limit: pass
class Box(typing.Generic[R]):
    def put(self, item: R) -> R: return item
def traced(function: typing.Callable[P, R], *rest: typing.Unpack[Ts]) -> typing.Callable[P, R]:
    def call(*args: P.args, **settings: P.kwargs) -> R: return function(*args, **settings)
    return call
@traced
def double(x): return 2 * x
        """,
        "(double(2), given[0] is R, Box.__parameters__ == (R,), R.__covariant__, repr(R.__bound__),"
        " K.__constraints__, P, Ts,"
        " R.__module__, traced.__annotations__['return'] == typing.Callable[P, R], Box[int]().put(3))",
        "R",
    ),
    "what stands for itself": (
        """
class Missing:
    def __reduce__(self): return "MISSING"
    def __repr__(self): return "MISSING"
MISSING = Missing()
MISSING.note = [1]
class Only(str):
    one = None
    def __new__(kind, *parts):
        if kind.one is None: kind.one = super().__new__(kind, "only")
        return kind.one
    def __reduce_ex__(self, protocol): return "ONLY"
ONLY = Only()
class Holds:
    default = MISSING
def get(value=MISSING): return value is MISSING
        """,
        "(get(), get(MISSING), given[0] is MISSING, type(given[0]) is Missing, MISSING.note, Holds.default is MISSING,"
        " ONLY == 'only', Only() is ONLY is Only.one, type(ONLY) is Only)",
        "MISSING",
    ),
    "structures": (
        """
class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]
    def norm(self): return self.x + self.y
class Packed(ctypes.BigEndianStructure):
    _pack_ = 1
    _fields_ = [("a", ctypes.c_uint8), ("b", ctypes.c_uint32), ("low", ctypes.c_uint8, 3), ("high", ctypes.c_uint8, 5)]
class Either(ctypes.Union):
    _fields_ = [("i", ctypes.c_int), ("f", ctypes.c_float)]
class Named(ctypes.Structure):
    _anonymous_ = ("either",)
    _fields_ = [("kind", ctypes.c_int), ("either", Either), ("points", Point * 2)]
class Node(ctypes.Structure): pass
Node._fields_ = [("value", ctypes.c_int), ("after", ctypes.POINTER(Node))]
class More(Point):
    _fields_ = [("z", ctypes.c_short)]
Row = ctypes.c_int * 7
Table = Row * 2
Compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Point), ctypes.c_void_p)
class Handle(ctypes.c_int): pass
def sizes(): return [ctypes.sizeof(kind) for kind in (Point, Packed, Either, Named, Node, More, Row, Table, Handle)]
def chain():
    second = Node(2)
    first = Node(1, ctypes.pointer(second))
    return first.after.contents.value
        """,
        "(sizes(), bytes(Packed(1, 2, 3, 4)), Named(1, i=5).i, Point(1, 2.5).norm(), More(1, 2, 3).z,"
        " chain(), len(Table()),"
        " given[0].norm(), type(given[0]) is Point, Compare(lambda one, two: one.contents.x)(Point(7), None),"
        " Handle(3).value, Named._fields_[2][1] is Point * 2)",
        "Point(3, 4)",
    ),
    "annotations": (
        """
class Plain:
    Name = int
    a: int
    b: "list[int]" = None
    c: Name = 0
    def method(self, q: Name) -> str: ...
@dataclasses.dataclass
class Data:
    a: int
    b: float = 0.0
class Child(Data):
    d: Plain
class Pair(typing.NamedTuple):
    a: int
    b: str = ""
def convert(row):
    hints = typing.get_type_hints(Data)
    return Data(**{name: hints[name](value) for name, value in row.items()})
def function(a: int, b: Plain = None) -> Data: ...
        """,
        "(Plain.__annotations__, typing.get_type_hints(Plain), Data.__annotations__,"
        " [one.type for one in dataclasses.fields(Data)],"
        " Pair.__annotations__, typing.get_type_hints(Pair), Child.__annotations__, typing.get_type_hints(Child),"
        " convert({'a': '5', 'b': '2'}), function.__annotations__, str(inspect.signature(function)),"
        " Plain.method.__annotations__)",
        "1",
    ),
}

ALIASES = (
    """
type Name = str
type Pair[T] = tuple[T, T]
type Tree = dict[str, Tree] | Name
class Box[T]:
    item: T
def get[T](item: T, name: Name = "") -> Pair[T]: return item, item
    """,
    "(get(1), get.__annotations__['name'] is Name, given[0] is Name, Name.__value__,"
    " Pair[int].__args__, str(Pair.__value__),"
    " Tree.__value__.__args__[0].__args__[1] is Tree, Box[int].__args__, Name.__module__, typing.get_type_hints(Box))",
    "Name",
)


def _check(tmp_path: Path, source: str, seen: str, given: str) -> None:
    program = PROGRAM.format(source=source.strip("\n"), seen=seen, given=given, mapped=f"[{given}]")
    assert run_program(tmp_path, program) == ["done"]


@pytest.mark.parametrize("name", CASES)
def test_a_type_is_what_it_is_in_the_program(tmp_path: Path, name: str) -> None:
    _check(tmp_path, *CASES[name])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement is new in Python 3.12")
def test_type_aliases_and_parameters_by_syntax(tmp_path: Path) -> None:
    _check(tmp_path, *ALIASES)


def test_what_stands_for_itself_comes_back_as_itself(tmp_path: Path) -> None:
    program = """
import ropewalk
class Missing:
    def __reduce__(self): return "MISSING"
MISSING = Missing()
def same(value): return [value, MISSING]
with ropewalk.Pool(1, kind="process") as pool:
    print([one is MISSING for one in pool.submit(same, MISSING).result(60)])
"""
    assert run_program(tmp_path, program) == ["[True, True]"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated when they are defined")
def test_annotations_that_mean_nothing_yet(tmp_path: Path) -> None:
    program = """
import ropewalk
class Plain:
    a: int
    b: Later
    c: list[Later]
def use(plain: Later, other: int) -> None: return Plain.__annotations__, use.__annotations__
def make():
    x = 1
    def inner(a: Nowhere): return x, inner.__annotations__
    return inner
with ropewalk.Pool(1, kind="process") as pool:
    print(pool.submit(use, None, 1).result(60))
    print(pool.submit(make(), 1).result(60))
    print("__annotations_cache__" in vars(Plain))
    class Later: pass
    print([one.__name__ for one in pool.submit(lambda: Plain.__annotations__).result(60).values()])
"""
    assert run_program(tmp_path, program) == [
        "({'a': <class 'int'>, 'b': 'Later', 'c': 'list[Later]'}, {'plain': 'Later',"
        " 'other': <class 'int'>, 'return': None})",
        "(1, {'a': 'Nowhere'})",
        "False",
        "['int', 'Later', 'list']",
    ]


def test_an_error_about_the_main_module_names_its_cure(tmp_path: Path) -> None:
    program = """
import ropewalk
class Named:
    def __reduce__(self): return find, ("absent",)
def find(name):
    import pickle
    return pickle.loads(b"c__main__\\n" + name.encode() + b"\\n.")
named = Named()
named.note = 1
with ropewalk.Pool(1, kind="process") as pool:
    try:
        pool.submit(lambda: named).result(60)
    except ropewalk.FunctionLoadError as error:
        print("preload" in str(error), "Refer to it by its name" in str(error))
"""
    assert run_program(tmp_path, program) == ["False True"]
