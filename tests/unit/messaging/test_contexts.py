"""Contexts: making them, defaults of their sockets, ending them."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.polling import until

import ropewalk.zmq as zmq


@pytest.fixture
def instance() -> Iterator[Any]:
    """The process's context, gone after the test."""
    context = zmq.Context.instance()
    yield context
    context.destroy(linger=0)


def test_a_context_as_context_manager_is_closed_at_its_end() -> None:
    with zmq.Context() as context:
        assert not context.closed
    assert context.closed
    context.term()


def test_leftover_sockets_are_closed_with_a_warning() -> None:
    with pytest.warns(ResourceWarning, match="unclosed socket"), zmq.Context() as context:
        socket = context.socket(zmq.PULL)
    assert socket.closed


def test_a_forgotten_context_warns_and_is_closed() -> None:
    with pytest.warns(ResourceWarning, match="Unclosed context"):
        _forget(zmq.Context)


def test_a_forgotten_socket_warns_and_is_closed() -> None:
    with zmq.Context() as context:
        with pytest.warns(ResourceWarning, match="Unclosed socket"):
            _forget(lambda: context.socket(zmq.PULL))
        # It would wait for a socket that is open.
        context.term()


def _forget(make: Callable[[], object]) -> None:
    make()
    gc.collect()


def test_destroy_closes_without_a_warning(context: Any) -> None:
    sockets = [context.socket(zmq.PUSH) for _ in range(3)]
    context.destroy()
    assert context.closed
    assert all(socket.closed for socket in sockets)


def test_a_closed_context_makes_no_socket(context: Any) -> None:
    context.term()
    with pytest.raises(zmq.ZMQError) as caught:
        context.socket(zmq.PULL)
    assert caught.value.errno == zmq.ENOTSUP


def test_a_closed_context_has_no_options(context: Any) -> None:
    context.term()
    with pytest.raises(RuntimeError):
        context.get(zmq.IO_THREADS)
    with pytest.raises(RuntimeError):
        context.set(zmq.IO_THREADS, 2)


def test_instance_is_one_for_the_process(instance: Any) -> None:
    assert zmq.Context.instance() is instance


def test_instance_is_made_anew_after_the_end(instance: Any) -> None:
    instance.term()
    again = zmq.Context.instance()
    assert again is not instance
    assert not again.closed
    again.term()


def test_a_subclass_may_have_an_instance_of_its_own(instance: Any) -> None:
    class Own(zmq.Context[Any]):
        _instance = None

    own = Own.instance()
    assert type(own) is Own
    assert Own.instance() is own
    own.term()
    assert zmq.Context.instance() is instance


def test_instance_is_one_for_all_threads(instance: Any) -> None:
    instance.term()
    found: list[Any] = []
    gate = threading.Barrier(8)

    def look() -> None:
        gate.wait(10)
        found.append(zmq.Context.instance())

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 8
    assert len(set(found)) == 1
    found[0].term()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_gets_another_instance(instance: Any) -> None:
    with instance.socket(zmq.PULL):
        pid = os.fork()
        if pid == 0:
            try:
                other = zmq.Context.instance()
                good = other is not instance and not other.closed
                with other.socket(zmq.PUSH) as socket:
                    socket.linger = 0
                    socket.bind("inproc://child")
                other.term()
                os._exit(0 if good else 1)
            except BaseException:
                os._exit(2)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert not instance.closed


def test_defaults_reach_new_sockets(context: Any) -> None:
    context.linger = 123
    context.setsockopt(zmq.SNDHWM, 7)
    with context.socket(zmq.PUSH) as socket:
        assert socket.linger == 123
        assert socket.sndhwm == 7
    assert context.linger == 123
    assert context.getsockopt(zmq.SNDHWM) == 7
    del context.linger
    with pytest.raises(AttributeError):
        _ = context.linger


def test_a_default_for_other_types_is_passed_over(context: Any) -> None:
    context.subscribe = b"topic"
    context.socket(zmq.PUSH).close()
    context.socket(zmq.SUB).close()


def test_options_of_the_context_itself(context: Any) -> None:
    context.set(zmq.MAX_SOCKETS, 17)
    assert context.get(zmq.MAX_SOCKETS) == 17
    context.max_sockets = 18
    assert context.max_sockets == 18
    with zmq.Context(io_threads=2) as other:
        assert other.io_threads == 2


def test_unknown_attributes_are_refused(context: Any) -> None:
    with pytest.raises(AttributeError):
        context.no_such_option = 1
    with pytest.raises(AttributeError):
        _ = context.no_such_option
    with pytest.raises(AttributeError):
        del context.no_such_option


def test_a_shadow_is_another_face_of_the_same(context: Any) -> None:
    for shadow in (zmq.Context(context), zmq.Context.shadow(context.underlying), copy.copy(context)):
        assert shadow.underlying == context.underlying
        with shadow.socket(zmq.PULL) as bound, context.socket(zmq.PUSH) as connected:
            bound.bind("inproc://shared")
            connected.linger = 0
            connected.connect("inproc://shared")
            connected.send(b"there")
            assert bound.recv() == b"there"
        del shadow
        gc.collect()
        assert not context.closed


def test_a_context_of_another_library_is_refused() -> None:
    with pytest.raises(NotImplementedError):
        zmq.Context.shadow_pyczmq(object())


def test_sockets_of_another_class(context: Any) -> None:
    class Special(zmq.Socket[bytes]):
        mood = "calm"

    with context.socket(zmq.PULL, socket_class=Special) as socket:
        assert type(socket) is Special
        socket.mood = "busy"
        assert socket.mood == "busy"


def test_repr_tells_the_sockets(context: Any) -> None:
    assert "()" in repr(context)
    with context.socket(zmq.PULL):
        assert "1 socket" in repr(context)
    context.term()
    assert repr(context).endswith("closed>")


def test_a_context_cannot_be_pickled(context: Any) -> None:
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(context)
    with context.socket(zmq.PULL) as socket, pytest.raises(TypeError, match="pickle"):
        pickle.dumps(socket)


def test_dir_names_the_options(context: Any) -> None:
    assert "IO_THREADS" in dir(context)
    with context.socket(zmq.PULL) as socket:
        assert "LINGER" in dir(socket)


def test_many_sockets(context: Any) -> None:
    sockets = [context.socket(zmq.REP) for _ in range(200)]
    assert "200 sockets" in repr(context)
    for socket in sockets:
        socket.close()
    assert "socket" not in repr(context)


def test_term_ends_what_waits(context: Any) -> None:
    socket = context.socket(zmq.PULL)
    socket.rcvtimeo = -1
    caught: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            socket.recv()
        except zmq.ContextTerminated as error:
            caught.append(error)
        socket.close()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(10)
    context.term()
    thread.join(20)
    until(lambda: not thread.is_alive())
    assert [type(error) for error in caught] == [zmq.ContextTerminated]
    assert context.closed
