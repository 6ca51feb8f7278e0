"""Results whose type has code of the program: it has run for them, and does not run again."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import functools
import ipaddress
import pathlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import pytest

from ropewalk.serving._checker import JSON, MSGPACK, Misfit

from .test_signatures import library, of_result  # noqa: F401  # A fixture.

#: What the code of the program has seen.
SEEN: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


@dataclasses.dataclass
class Doubled:
    x: int

    def __post_init__(self) -> None:
        SEEN.append(self.x)
        self.x *= 2


@pytest.mark.parametrize(
    ("returned", "value", "written"),
    [
        (Doubled, lambda: Doubled(1), b'{"x":2}'),
        (list[Doubled], lambda: [Doubled(1)], b'[{"x":2}]'),
        (dict[str, list[Doubled]] | None, lambda: {"a": [Doubled(1)]}, b'{"a":[{"x":2}]}'),
        (tuple[int, Doubled], lambda: (1, Doubled(1)), b'[1,{"x":2}]'),
    ],
)
@pytest.mark.parametrize("form", [JSON, MSGPACK])
def test_a_dataclass_is_made_once(
    library: str,  # noqa: F811
    returned: Any,
    value: Callable[[], Any],
    written: bytes,
    form: int,
) -> None:
    msgspec = pytest.importorskip("msgspec")
    answer = of_result(returned).encode(form, value())
    assert isinstance(answer, bytes)
    assert SEEN == [1]
    if form == JSON:
        assert answer[1:] == written
    else:
        assert msgspec.msgpack.decode(answer[1:]) == msgspec.json.decode(written)


def test_a_struct_is_made_once() -> None:
    msgspec = pytest.importorskip("msgspec")
    struct: Any = msgspec.defstruct(
        "Seen", [("x", int)], namespace={"__post_init__": lambda self: SEEN.append(self.x)}
    )
    signature = of_result(list[struct])
    assert signature.encode(JSON, [struct(1)]) == b'\x01[{"x":1}]'
    assert of_result(msgspec.defstruct("Within", [("of", dict[str, struct])])).encode(JSON, 1) == b"\x011"
    assert SEEN == [1]
    # One without such code is checked.
    with pytest.raises(Misfit):
        of_result(msgspec.defstruct("Quiet", [("x", int)])).encode(JSON, {"x": "1"})


@dataclasses.dataclass
class Tree:
    left: Tree | None
    name: str


def test_a_type_with_itself_in_it_is_checked(library: str) -> None:  # noqa: F811
    signature = of_result(list[Tree])
    tree = Tree(Tree(None, "b"), "a")
    assert signature.encode(JSON, [tree]) == b'\x01[{"left":{"left":null,"name":"b"},"name":"a"}]'
    with pytest.raises(Misfit):
        signature.encode(JSON, [Tree(Tree(None, 1), "a")])  # type: ignore[arg-type]


def typed(name: str, annotation: Any, **more: Any) -> Any:
    """A model with one field."""
    import pydantic

    return pydantic.create_model(name, tags=(annotation, ...), **more)


def split(value: Any) -> list[str]:
    SEEN.append(value)
    found: list[str] = value.split(",")
    return found


def seen(value: Any) -> Any:
    SEEN.append(value)
    return value


def around(value: Any, handler: Any) -> Any:
    return handler(split(value))


def models() -> dict[str, tuple[Any, str | list[str]]]:
    """Types with code of the program in them, and what makes the tags `a` and `b` of each."""
    pydantic = pytest.importorskip("pydantic")
    functional = pydantic.functional_validators

    class Made(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        tags: list[str]

        def __init__(self, tags: str) -> None:
            super().__init__(tags=split(tags))

    class Later(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        tags: list[str]

        def model_post_init(self, _context: Any) -> None:
            SEEN.append(self.tags)

    class New(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        tags: list[str]

        def __new__(cls, *_args: Any, **given: Any) -> New:
            SEEN.append(given)
            made: New = super().__new__(cls)
            return made

    tags = Annotated[list[str], pydantic.BeforeValidator(split)]
    joined = {"tags": "a,b"}
    left = Annotated[typed("Left", list[str]), pydantic.Tag("left")]
    right = Annotated[typed("Right", tuple[str, str]), pydantic.Tag("right")]
    of: dict[str, tuple[Any, Any]] = {
        "annotated": (typed("Row", tags), joined),
        "plain": (typed("Row", Annotated[list[str], pydantic.PlainValidator(split)]), joined),
        "wrap": (typed("Row", Annotated[list[str], pydantic.WrapValidator(around)]), joined),
        "after": (typed("Row", Annotated[list[str], pydantic.AfterValidator(seen)]), {"tags": ["a", "b"]}),
        "partial": (
            typed("Row", Annotated[list[str], pydantic.AfterValidator(functools.partial(seen))]),
            {"tags": ["a", "b"]},
        ),
        "field": (
            typed(
                "Row",
                list[str],
                __validators__={"before": pydantic.field_validator("tags", mode="before")(split)},
            ),
            joined,
        ),
        "model": (
            typed(
                "Row",
                list[str],
                __validators__={
                    "before": functional.model_validator(mode="before")(
                        lambda value: {"tags": split(value["tags"])}
                    )
                },
            ),
            joined,
        ),
        "init": (Made, joined),
        "post_init": (Later, {"tags": ["a", "b"]}),
        "new": (New, {"tags": ["a", "b"]}),
    }
    made = {name: (one, lambda one=one, given=given: one(**given)) for name, (one, given) in of.items()}
    row = of["annotated"][0]
    made["within"] = (
        dict[str, tuple[row, ...] | None],  # type: ignore[valid-type]
        made["annotated"][1],
    )
    chosen = Annotated[left | right, pydantic.Discriminator(lambda value: seen("left"))]  # type: ignore[operator]
    made["discriminator"] = (chosen, lambda: left.__origin__(tags=["a", "b"]))
    return made  # type: ignore[return-value]


NAMES = ("annotated", "plain", "wrap", "after", "partial", "field", "model", "init", "post_init", "new")


@pytest.mark.parametrize("name", [*NAMES, "within", "discriminator"])
def test_validators_of_a_model_do_not_see_its_result(name: str) -> None:
    returned, make = models()[name]
    value: Any = make()  # type: ignore[operator]
    count = len(SEEN)
    signature = of_result(returned)
    if name == "within":
        assert signature.encode(JSON, {"a": (value,)}) == b'\x01{"a":[{"tags":["a","b"]}]}'
    else:
        assert signature.encode(JSON, value) == b'\x01{"tags":["a","b"]}'
    assert len(SEEN) == count


def test_a_predicate_does_not_see_a_result() -> None:
    pytest.importorskip("pydantic")
    types = pytest.importorskip("annotated_types")
    signature = of_result(Annotated[int, types.Predicate(lambda value: seen(value) > 0)])
    assert signature.encode(JSON, 1) == b"\x011"
    assert not SEEN


class Kind(enum.Enum):
    ONE = "one"


class Pair(NamedTuple):
    a: int
    b: int = 0


def test_what_has_no_code_of_the_program_is_checked() -> None:
    pydantic = pytest.importorskip("pydantic")
    # Names of fields are none of a schema's own.
    names = ("function", "discriminator", "post_init", "type", "metadata", "default", "cls")
    named = pydantic.create_model("Named", **dict.fromkeys(names, (int, 0)))
    small = pydantic.create_model("Small", x=(Annotated[decimal.Decimal, pydantic.Field(max_digits=3)], ...))
    for returned in (
        pathlib.Path,
        ipaddress.IPv4Address,
        Sequence[int],
        collections.deque[int],
        collections.defaultdict[str, int],
        Kind,
        Pair,
        named,
        small,
        list[small],
        pydantic.conint(gt=3),
        pydantic.HttpUrl,
        pydantic.FilePath,
    ):
        with pytest.raises(Misfit):
            of_result(returned).encode(JSON, True)
    with pytest.raises(Misfit, match="default"):
        of_result(named).encode(JSON, {"default": "1"})
    assert of_result(Pair).encode(JSON, Pair(1)) == b"\x01[1,0]"
    assert of_result(ipaddress.IPv4Address).encode(JSON, "0.0.0.1") == b'\x01"0.0.0.1"'
