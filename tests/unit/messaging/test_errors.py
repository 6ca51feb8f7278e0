"""Errors: their classes, numbers and texts."""

from __future__ import annotations

import errno
import pickle
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq as zmq
from ropewalk.zmq import error


def test_the_family() -> None:
    assert issubclass(zmq.ZMQBaseError, ropewalk.RopewalkError)
    for kind in (zmq.Again, zmq.ContextTerminated, zmq.InterruptedSystemCall):
        assert issubclass(kind, zmq.ZMQError)
    for kind in (zmq.ZMQError, zmq.ZMQBindError, zmq.NotDone):
        assert issubclass(kind, zmq.ZMQBaseError)
    assert issubclass(zmq.InterruptedSystemCall, InterruptedError)
    assert issubclass(zmq.ZMQVersionError, NotImplementedError)


def test_a_number_has_a_text() -> None:
    problem = zmq.ZMQError(zmq.EINVAL)
    assert problem.errno == errno.EINVAL
    assert str(problem) == problem.strerror == zmq.strerror(errno.EINVAL)
    assert repr(problem) == f"ZMQError({str(problem)!r})"
    assert str(zmq.ZMQError(zmq.EINVAL, "in other words")) == "in other words"
    assert str(zmq.ZMQError("no number")) == "no number"
    assert zmq.ZMQError("no number").errno is None


def test_without_a_number_it_is_the_latest(context: Any) -> None:
    with pytest.raises(zmq.ZMQError):
        context.socket(zmq.PULL).get(9999)
    assert zmq.zmq_errno() == zmq.EINVAL
    assert zmq.ZMQError().errno == zmq.EINVAL


def test_some_numbers_have_classes() -> None:
    assert zmq.Again().errno == errno.EAGAIN
    assert zmq.Again("ignored").errno == errno.EAGAIN
    assert zmq.ContextTerminated().errno == zmq.ETERM
    assert zmq.InterruptedSystemCall().errno == errno.EINTR
    assert zmq.InterruptedSystemCall(errno.EINTR).errno == errno.EINTR


@pytest.mark.parametrize("kind", [zmq.ZMQError, zmq.Again, zmq.ContextTerminated])
def test_they_can_be_pickled(kind: type[zmq.ZMQError]) -> None:
    problem = kind(zmq.EFSM)
    again = pickle.loads(pickle.dumps(problem))
    assert type(again) is kind
    assert (again.errno, str(again)) == (problem.errno, str(problem))


@pytest.mark.parametrize("number", ["EFSM", "ETERM", "ENOCOMPATPROTO", "EMTHREAD", "EAGAIN", "EADDRINUSE"])
def test_every_number_has_words(number: str) -> None:
    words = zmq.strerror(zmq.Errno[number])
    assert words
    assert "nknown" not in words


def test_an_address_that_is_taken(context: Any) -> None:
    first, second = context.socket(zmq.REP), context.socket(zmq.REP)
    port = first.bind_to_random_port("tcp://127.0.0.1")
    with pytest.raises(zmq.ZMQError) as caught:
        second.bind(f"tcp://127.0.0.1:{port}")
    assert caught.value.errno == zmq.EADDRINUSE
    assert f"tcp://127.0.0.1:{port}" in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "number"),
    [
        ("nonsense", "EINVAL"),
        ("tcp://127.0.0.1:notaport", "EINVAL"),
        ("carrier-pigeon://roof", "EPROTONOSUPPORT"),
        ("", "EINVAL"),
    ],
)
def test_an_address_that_is_none(context: Any, endpoint: str, number: str) -> None:
    socket = context.socket(zmq.PAIR)
    for attempt in (socket.bind, socket.connect):
        with pytest.raises(zmq.ZMQError) as caught:
            attempt(endpoint)
        assert caught.value.errno == zmq.Errno[number]
        assert repr(endpoint) in str(caught.value)


def test_an_address_of_the_wrong_type(context: Any) -> None:
    socket = context.socket(zmq.PAIR)
    with pytest.raises(TypeError):
        socket.bind(5)
    with pytest.raises(TypeError):
        socket.connect(None)


def test_a_path_that_is_too_long(context: Any, tmp_path: Any) -> None:
    path = tmp_path / ("x" * zmq.IPC_PATH_MAX_LEN)
    with pytest.raises(zmq.ZMQError) as caught:
        context.socket(zmq.PAIR).bind(f"ipc://{path}")
    assert caught.value.errno == errno.ENAMETOOLONG
    assert str(zmq.IPC_PATH_MAX_LEN) in str(caught.value)


def test_a_path_that_does_not_exist(context: Any, tmp_path: Any) -> None:
    with pytest.raises(zmq.ZMQError) as caught:
        context.socket(zmq.PAIR).bind(f"ipc://{tmp_path}/no/such/folder")
    assert caught.value.errno == errno.ENOENT
    assert "no/such/folder" in str(caught.value)


def test_a_socket_type_that_is_none(context: Any) -> None:
    for number in (99, -2):
        with pytest.raises((zmq.ZMQError, TypeError)):
            context.socket(number)


def test_a_socket_needs_a_context() -> None:
    with pytest.raises(TypeError):
        zmq.Socket(None, zmq.PULL)  # type: ignore[call-overload]


def test_a_feature_of_a_later_version() -> None:
    error._check_version((4, 2), "anything")
    with pytest.raises(zmq.ZMQVersionError) as caught:
        error._check_version((99, 1), "teleporting")
    assert str(caught.value) == f"teleporting requires libzmq >= 99.1, have {zmq.zmq_version()}"
    assert (caught.value.min_version, caught.value.msg) == ("99.1", "teleporting")
