"""Classes of the program's main module in workers: they behave as classes that workers can import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import abc, collections, dataclasses, enum, fractions, functools, json, threading, typing, weakref
import ropewalk
{source}
NAMES = [name for name, value in list(globals().items()) if isinstance(value, type) and value.__module__ == "__main__"]

def has(item):
    return {has}

def made():
    return {made}

def give(item):
    return has(item), isinstance(item, type(made())), item

with ropewalk.Pool(1, kind="process") as pool:
    expected = has({made})
    # The argument comes first: nothing has brought the class to the worker before.
    seen, one_class, back = pool.submit(give, {made}).result(60)
    assert seen == expected, ("argument", seen, expected)
    assert one_class, "the worker has two classes"
    assert type(back) is type({made}), "it came back as another class"
    assert has(back) == expected, ("back", has(back), expected)
with ropewalk.Pool(1, kind="process") as pool:
    result = pool.submit(made).result(60)
    assert type(result) is type({made}), "a result of another class"
    assert has(result) == expected, ("result", has(result), expected)
    [result] = pool.map(lambda _: {made}, [0])
    assert type(result) is type({made}) and has(result) == expected
    [(seen, one_class, _)] = pool.map(give, [{made}])
    assert seen == expected and one_class, ("both", seen, expected)
    assert pool.submit(lambda: has({made})).result(60) == expected
print("done")
"""

#: What the class is, how an instance is made, and what is asked of it on both sides.
CASES: dict[str, tuple[str, str, str]] = {
    "slots": (
        """
class Point:
    __slots__ = ("x", "__hidden")
    def __init__(self, x): self.x = x; self.__hidden = -x
    def hidden(self): return self.__hidden
        """,
        "Point(3)",
        "(item.x, item.hidden(), hasattr(item, '__dict__'), type(item).__slots__)",
    ),
    "slots that are one name, and inherited": (
        """
class Base:
    __slots__ = "x"
class Middle(Base):
    __slots__ = {"y": "what it is"}
class Point(Middle):
    __slots__ = ["z", "__weakref__"]
    def __init__(self): self.x, self.y, self.z = 1, 2, 3
        """,
        "Point()",
        "(item.x, item.y, item.z, weakref.ref(item)() is item, hasattr(item, '__dict__'), type(item).__slots__)",
    ),
    "slots below a class without": (
        """
class Base: pass
class Point(Base):
    __slots__ = ("x",)
    def __init__(self): self.x = 1; self.other = 2
        """,
        "Point()",
        "(item.x, item.other, vars(item))",
    ),
    "dataclass with slots": (
        """
@dataclasses.dataclass(slots=True, order=True)
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list)
        """,
        "Point(3)",
        "(item, hasattr(item, '__dict__'), item < Point(4), [f.name for f in dataclasses.fields(item)])",
    ),
    "dataclass, frozen with slots": (
        """
@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    x: int
@dataclasses.dataclass(frozen=True, slots=True)
class Point(Base):
    y: int = 4
    def moved(self): return dataclasses.replace(self, x=self.x + 1)
        """,
        "Point(3)",
        "(item, hash(item), item.moved(), hasattr(item, '__dict__'))",
    ),
    "nested classes": (
        """
class Tree:
    class Node:
        class Leaf:
            pass
        def child(self): return Tree.Node()
        def leaf(self): return Tree.Node.Leaf()
        """,
        "Tree.Node()",
        "(type(item.child()) is type(item), type(item.leaf()) is Tree.Node.Leaf)",
    ),
    "an alias of a nested class": (
        """
class Tree:
    class Node:
        def child(self): return Alias(), Tree.Node()
Alias = Tree.Node
        """,
        "Alias()",
        "(all(type(one) is type(item) for one in item.child()), Alias is Tree.Node)",
    ),
    "a metaclass that registers": (
        """
MADE = {}
class Meta(type):
    def __new__(metaclass, name, bases, namespace):
        made = super().__new__(metaclass, name, bases, namespace); MADE[name] = made; made.count = len(MADE)
        return made
    def __init__(self, *arguments): super().__init__(*arguments); ORDER.append(self.__name__)
    def __call__(self, *arguments): return super().__call__(*arguments)
    def __setattr__(self, name, value): ORDER.extend([name] * (name[0] != '_')); super().__setattr__(name, value)
    @property
    def known(self): return sorted(MADE)
ORDER = []
class First(metaclass=Meta): pass
class Second(First): pass
        """,
        "Second()",
        "(type(item).known, ORDER, MADE['Second'] is type(item), MADE['First'] is First, item.count)",
    ),
    "a metaclass that is abstract, with a namespace of its own": (
        """
class Meta(abc.ABCMeta):
    @classmethod
    def __prepare__(metaclass, name, bases, **settings): return Space()
    def __new__(metaclass, name, bases, namespace, *, tag):
        made = super().__new__(metaclass, name, bases, dict(namespace)); made.tag = tag
        return made
    def __init__(self, name, bases, namespace, *, tag): super().__init__(name, bases, namespace)
class Space(dict): pass
class Kind(metaclass=Meta, tag="kind"): pass
Kind.register(fractions.Fraction)
class Other: pass
Kind.register(Other)
        """,
        "Kind()",
        "(item.tag, isinstance(fractions.Fraction(1), Kind), issubclass(Other, Kind), issubclass(int, Kind))",
    ),
    "__init_subclass__ that registers": (
        """
class Base:
    names, kinds = [], {}
    def __init_subclass__(cls, /, tag, **settings):
        super().__init_subclass__(**settings); cls.tag = tag
        Base.names.append(cls.__name__); Base.kinds[tag] = cls; COUNTS.append(len(Base.names))
COUNTS = []
class A(Base, tag="a"): pass
class Last(Base, tag="last"): pass
def later():
    class Later(Base, tag="later"): pass
    found = Base.kinds.pop("later") is Later and Base.names.pop() == "Later" and COUNTS.pop() == 3
    return found
        """,
        "A()",
        "(Base.names, sorted(Base.kinds), COUNTS, item.tag, Base.kinds['a'] is type(item), later())",
    ),
    "__set_name__ descriptors": (
        """
CALLS = []
class Field:
    def __set_name__(self, owner, name): CALLS.append(name); self.name = "_" + name; self.owner = owner
    def __get__(self, item, owner=None): return self if item is None else getattr(item, self.name, DEFAULT)
    def __set__(self, item, value): setattr(item, self.name, value)
DEFAULT = 7
class Record:
    x, y = Field(), Field()
    def __init__(self): self.x = 1
        """,
        "Record()",
        "(item.x, item.y, CALLS, Record.x.owner is type(item))",
    ),
    "abstract": (
        """
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
    @property
    @abc.abstractmethod
    def name(self): ...
class Square(Shape):
    def area(self): return SIDE * SIDE
    @property
    def name(self): return "square"
SIDE = 3
def refuses():
    try: Shape()
    except TypeError: return True
        """,
        "Square()",
        "(item.area(), item.name, isinstance(item, Shape), refuses(), sorted(Shape.__abstractmethods__))",
    ),
    "a named tuple": (
        """
class Pair(typing.NamedTuple):
    x: int
    y: int = 2
    def total(self): return self.x + self.y + EXTRA
EXTRA = 10
        """,
        "Pair(1)",
        "(item, item.total(), item._asdict(), Pair._fields, item._replace(x=5), hasattr(item, '__dict__'))",
    ),
    "a named tuple of collections": (
        "Pair = collections.namedtuple('Pair', 'x y', defaults=(2,))",
        "Pair(1)",
        "(item, item.x, item._asdict(), Pair._field_defaults)",
    ),
    "an enumeration with methods": (
        """
class Planet(enum.Enum):
    EARTH = (5.0, 6.0)
    MARS = (1.0, 2.0)
    TERRA = EARTH
    def __init__(self, mass, radius): self.mass, self.radius = mass, radius
    def weight(self): return self.mass * SCALE
    @classmethod
    def first(cls): return next(iter(cls))
SCALE = 10
        """,
        "Planet.EARTH",
        "(item is Planet.EARTH, item.mass, item.weight(), Planet.first() is item, list(Planet.__members__),"
        " Planet((1.0, 2.0)) is Planet.MARS, Planet.TERRA is item)",
    ),
    "enumerations of numbers and texts": (
        """
class Level(enum.IntEnum):
    LOW = enum.auto()
    HIGH = enum.auto()
class Colour(str, enum.Enum):
    RED = "red"
class Coded(bytes, enum.Enum):
    def __new__(cls, value, label):
        made = bytes.__new__(cls, [value]); made._value_ = value; made.label = label
        return made
    A = (1, "first")
class Flags(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    RW = R | W
@dataclasses.dataclass
class Holder:
    level: Level = Level.HIGH
        """,
        "Holder()",
        "(item.level is Level.HIGH, item.level + 1, Colour.RED.upper(), Colour('red') is Colour.RED, Flags.R | Flags.W"
        " is Flags.RW, Flags.RW.value, Coded.A.label, bytes(Coded.A), Coded(1) is Coded.A)",
    ),
    "enumerations whose bases make the members": (
        """
class Numbered(enum.Enum):
    def __new__(cls, *labels):
        made = object.__new__(cls); made._value_ = len(cls.__members__) + 1
        return made
    def __init__(self, *labels): self.labels = labels; SEEN.append(self.name)
SEEN = []
class Kind(Numbered):
    A = "a", "first"
    B = "b"
    @property
    def title(self): return self.labels[0].title() + DOT
DOT = "."
@dataclasses.dataclass
class Size:
    width: int
    def area(self): return self.width * 2
class Paper(Size, enum.Enum):
    A4 = 21
        """,
        "Kind.B",
        "(item.value, item.labels, item.title, Kind(1) is Kind.A, Kind(2) is item, SEEN, Paper.A4.width,"
        " Paper.A4.area())",
    ),
    "generic": (
        """
T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    def __init__(self, item: T): self.item = item
class Ints(Box[int]):
    __slots__ = ()
        """,
        "Ints(3)",
        "(item.item, isinstance(item, Box), Box[int].__origin__ is Box, Ints.__orig_bases__ == (Box[int],),"
        " Box.__parameters__ == (T,), Box[str]('a').item)",
    ),
    "__class_getitem__": (
        """
class Sized:
    def __class_getitem__(cls, size): return f"{cls.__name__} of {size}{UNIT}"
UNIT = "m"
        """,
        "Sized()",
        "(Sized[3], type(item)[4])",
    ),
    "a protocol": (
        """
@typing.runtime_checkable
class Closes(typing.Protocol):
    def close(self) -> None: ...
class File:
    def close(self): pass
        """,
        "File()",
        "(isinstance(item, Closes), isinstance(3, Closes))",
    ),
    "properties and the like": (
        """
def helper(x): return x * FACTOR
def traced(function):
    @functools.wraps(function)
    def run(*arguments): return helper(function(*arguments))
    return run
FACTOR = 2
class Circle:
    def __init__(self, r): self._r = r
    @property
    def r(self):
        "the radius"
        return helper(self._r)
    @r.setter
    def r(self, value): self._r = value
    @functools.cached_property
    def twice(self): return helper(self._r)
    @classmethod
    def unit(cls): return cls(1)
    @staticmethod
    def pi(): return helper(3)
    @traced
    def traced(self): return self._r
    part = functools.partialmethod(lambda self, x: helper(x), 5)
    def set(self): self.r = 9; return self._r
        """,
        "Circle(4)",
        "(item.r, Circle.r.__doc__, Circle(1).twice, type(item.unit()) is Circle, item.pi(), item.traced(),"
        " item.part(), Circle(1).set(), Circle.traced.__name__)",
    ),
    "super and __class__": (
        """
class Base:
    def __init__(self, x): self.x = x
    def who(self): return ["Base"]
    @classmethod
    def build(cls): return cls(1)
class Left(Base):
    def who(self): return ["Left", *super().who()]
class Right(Base):
    def who(self): return ["Right", *super().who()]
class Both(Left, Right):
    def who(self): return [__class__.__name__, *super().who()]
    @classmethod
    def build(cls): made = super().build(); made.x += 1; return made
        """,
        "Both(3)",
        "(item.x, item.who(), Both.build().x, [kind.__name__ for kind in Both.__mro__])",
    ),
    "a base that is imported": (
        """
class Ordered(collections.OrderedDict):
    def total(self): return sum(self.values()) + START
START = 100
class Codes(json.JSONEncoder):
    def default(self, value): return str(value)
        """,
        "Ordered(a=1, b=2)",
        "(item, item.total(), Codes().encode(fractions.Fraction(1, 2)))",
    ),
    "how it is made and compared": (
        """
class Key:
    def __init__(self, name): self.name = name
    def __reduce__(self): return make_key, (self.name,)
    def __eq__(self, other): return folded(self.name) == folded(other.name)
    def __hash__(self): return hash(folded(self.name))
def make_key(name): return CACHE.get(name) or Key(name)
def folded(text): return text.lower() + SUFFIX
CACHE = {}
SUFFIX = "!"
TABLE = {Key("A"): 1}
        """,
        "Key('a')",
        "(TABLE[item], {item: 2}[Key('A')], len({item, Key('A')}))",
    ),
    "state that reads globals": (
        """
A_TABLE = {}
class Counted:
    def __init__(self): self.x = 1
    def __getstate__(self): return {"x": self.x}
    def __setstate__(self, state): self.x = state["x"] * Z_SCALE; self.log = Z_LOG["k"]
A_ONE = Counted()
Z_SCALE = 1
Z_LOG = {"k": 5}
        """,
        "Counted()",
        "(item.x, A_ONE.x)",
    ),
    "classes that lead to each other": (
        """
class B:
    others = []
    def other(self): return A()
class A(B):
    def other(self): return B()
B.others += [A, B]
B.partner, A.partner = A, B
        """,
        "A()",
        "(type(item.other()) is B, type(B().other()) is A, B.others == [A, B], B.partner is A, A.partner is B)",
    ),
    "a class with methods of no name": (
        """
def factory(step):
    class Local:
        def __init__(self): self.x = 1
        def next(self): return self.x + step + OFFSET
    return Local
Made = factory(5)
Made.__qualname__ = "Made"
OFFSET = 100
class Calls:
    add = lambda self, x: x + OFFSET
    table = {"f": lambda x: x - OFFSET}
        """,
        "Made()",
        "(item.next(), Calls().add(1), Calls.table['f'](1))",
    ),
}


def run_program(tmp_path: Path, source: str) -> list[str]:
    """What a script prints."""
    file = tmp_path / "program.py"
    file.write_text(source)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", CASES)
def test_a_class_is_what_it_is_in_the_program(tmp_path: Path, name: str) -> None:
    source, made, has = CASES[name]
    program = PROGRAM.format(source=source.strip("\n"), made=made, has=has)
    assert run_program(tmp_path, program) == ["done"]


def test_an_exception_with_slots_arrives_whole(tmp_path: Path) -> None:
    program = """
import dataclasses, ropewalk
@dataclasses.dataclass(frozen=True, slots=True)
class Refused(Exception):
    code: int
    why: str = "so"
def refuse(code): raise Refused(code)
with ropewalk.Pool(1, kind="process") as pool:
    try:
        pool.submit(refuse, 4).result(60)
    except Refused as error:
        print(error.code, error.why, error.args)
"""
    assert run_program(tmp_path, program) == ["4 so (4,)"]


def test_slots_that_were_given_as_an_iterator(tmp_path: Path) -> None:
    program = """
import ropewalk
class Point:
    __slots__ = iter(["x"])
def make():
    point = Point()
    point.x = 1
    return point.x, hasattr(point, "__dict__")
with ropewalk.Pool(1, kind="process") as pool:
    print(pool.submit(make).result(60))
"""
    assert run_program(tmp_path, program) == ["(1, False)"]


def test_a_class_that_a_function_makes_comes_back(tmp_path: Path) -> None:
    program = """
import ropewalk
def make():
    class Local:
        __slots__ = ("x",)
        def __init__(self): self.x = 3
    return Local()
with ropewalk.Pool(1, kind="process") as pool:
    has = lambda one: (one.x, hasattr(one, "__dict__"))
    print(has(pool.submit(make).result(60)), pool.submit(has, make()).result(60))
"""
    assert run_program(tmp_path, program) == ["(3, False) (3, False)"]
