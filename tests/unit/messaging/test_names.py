"""The names that programs import, and their values."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq as zmq
from ropewalk.zmq import constants
from ropewalk.zmq.decorators import context as with_context, socket as with_socket


def test_every_public_name_is_there() -> None:
    assert len(zmq.__all__) == len(set(zmq.__all__))
    for name in zmq.__all__:
        getattr(zmq, name)
    assert ropewalk.zmq is zmq


def test_every_constant_is_its_enums_member() -> None:
    for enum in (
        constants.ContextOption,
        constants.DeviceType,
        constants.Errno,
        constants.Event,
        constants.Flag,
        constants.MessageOption,
        constants.NormMode,
        constants.PollEvent,
        constants.ReconnectStop,
        constants.RouterNotify,
        constants.SecurityMechanism,
        constants.SocketOption,
        constants.SocketType,
    ):
        assert enum.__name__ in constants.__all__
        name_of = getattr(enum, "_global_name", str)
        for name, member in enum.__members__.items():
            exported = name_of(name)
            assert getattr(zmq, exported) is member
            assert exported in constants.__all__


@pytest.mark.parametrize(
    ("name", "number"),
    [("PUB", 1), ("CHANNEL", 20), ("SUBSCRIBE", 6), ("LINGER", 17), ("NOBLOCK", 1), ("EVENT_ALL", 0xFFFF)],
)
def test_the_numbers_are_the_protocols(name: str, number: int) -> None:
    assert getattr(zmq, name) == number


def test_old_names_are_the_new_ones() -> None:
    assert zmq.IDENTITY is zmq.ROUTING_ID
    assert zmq.XREQ is zmq.DEALER
    assert zmq.DONTWAIT is zmq.NOBLOCK


def test_constants_equal_pyzmqs() -> None:
    theirs = pytest.importorskip("zmq.constants")
    for name in theirs.__all__:
        value = getattr(theirs, name)
        if isinstance(value, int):
            assert getattr(zmq, name) == value, name
    for option in theirs.SocketOption:
        assert constants.SocketOption(option).kind.name.lower() == {"fd": "descriptor"}.get(
            option._opt_type.value, option._opt_type.value
        )


def test_every_name_of_pyzmqs_is_here() -> None:
    theirs = pytest.importorskip("zmq")
    missing = {name for name in theirs.__all__ if not hasattr(zmq, name)}
    # What pyzmq's modules export of the standard library's, and its backend's own flag.
    assert missing <= {"Enum", "IntEnum", "IntFlag", "PYZMQ_DRAFT_API"}
    theirs_socket = {name for name in dir(theirs.Socket) if not name.startswith("_")}
    assert theirs_socket - set(dir(zmq.Socket)) - set(constants.SocketOption.__members__) <= {"get", "set"}
    theirs_context = {name for name in dir(theirs.Context) if not name.startswith("_")}
    assert not {name for name in theirs_context if not hasattr(zmq.Context, name)} - {"handle", "sockopts"}


def test_versions() -> None:
    assert zmq.zmq_version_info() >= (4, 3, 4)
    assert zmq.zmq_version() == ".".join(map(str, zmq.zmq_version_info()))
    assert zmq.pyzmq_version() == zmq.__version__
    assert zmq.pyzmq_version_info() >= (27, 0, 0)


def test_what_there_is() -> None:
    for capability in ("ipc", "shm", "curve"):
        assert zmq.has(capability) is True
    assert zmq.has("carrier pigeons") is False
    for refused in (zmq.get_includes, zmq.get_library_dirs):
        with pytest.raises(NotImplementedError):
            refused()


def test_keys() -> None:
    public, secret = zmq.curve_keypair()
    assert len(public) == len(secret) == 40
    assert zmq.curve_public(secret) == public
    assert zmq.curve_public(secret.decode()) == public
    with pytest.raises(ValueError, match="40"):
        zmq.curve_public(b"short")


def test_the_clock_warns() -> None:
    with pytest.warns(DeprecationWarning, match="deprecated"):
        clock = zmq.Stopwatch()
    clock.start()
    assert clock.stop() >= 0


def test_small_modules() -> None:
    jsonapi = importlib.import_module("ropewalk.zmq.utils.jsonapi")
    assert jsonapi.loads(jsonapi.dumps({"a": 1})) == {"a": 1}
    interop = importlib.import_module("ropewalk.zmq.utils.interop")
    assert interop.cast_int_addr(5) == 5
    with pytest.raises(ValueError, match="cast"):
        interop.cast_int_addr("five")
    strtypes = importlib.import_module("ropewalk.zmq.utils.strtypes")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        assert strtypes.asbytes("a") == b"a"
    with pytest.warns(DeprecationWarning, match="deprecated"):
        assert strtypes.u(b"a") == "a"
    with pytest.warns(DeprecationWarning, match="deprecated"), pytest.raises(TypeError):
        strtypes.cast_bytes(5)


def test_decorators_give_and_close() -> None:
    seen: list[Any] = []

    @with_context()
    @with_socket(zmq.PUSH)
    def work(number: int, context: Any, push: Any) -> int:
        assert push.context is context
        seen.extend([context, push])
        return number

    assert work(5) == 5  # type: ignore[call-arg]
    assert [each.closed for each in seen] == [True, True]


def test_decorators_give_by_name() -> None:
    @with_context("ctx")
    @with_socket("pull", zmq.PULL, context_name="ctx")
    def work(*, ctx: Any, pull: Any) -> None:
        assert pull.context is ctx
        assert pull.type == zmq.PULL

    work()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="multiple values"):
        work(ctx=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("module", ["_context", "_socket", "_poll", "decorators"])
def test_the_docstrings_examples_are_true(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"ropewalk.zmq.{module}"))
    assert found.attempted
    assert not found.failed


def test_importing_the_package_does_not_load_it() -> None:
    code = "import sys, ropewalk; assert not any('zmq' in name for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
