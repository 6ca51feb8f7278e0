"""pyzmq over our sockets, in a separate process, because `PYZMQ_BACKEND` is read at import."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed")


def _run(code: str) -> None:
    environment = {**os.environ, "PYZMQ_BACKEND": "ropewalk.zmq.backend"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_pyzmq_runs_on_it() -> None:
    _run(
        """
        import zmq
        import ropewalk.zmq.backend as backend

        assert issubclass(zmq.Socket, backend.Socket)
        with zmq.Context() as context, context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
            port = rep.bind_to_random_port("tcp://127.0.0.1")
            req.connect(f"tcp://127.0.0.1:{port}")
            req.send_multipart([b"a", b"b"])
            frames = rep.recv_multipart(copy=False)
            assert [type(frame) for frame in frames] == [zmq.Frame, zmq.Frame]
            assert frames[0]["Socket-Type"] == "REQ"
            rep.send_json({"answer": frames[1].bytes.decode()})
            assert req.recv_json() == {"answer": "b"}
            tracker = req.send(b"x" * 100_000, copy=False, track=True)
            assert isinstance(tracker, zmq.MessageTracker)
            assert len(rep.recv()) == 100_000
            tracker.wait(20)
            poller = zmq.Poller()
            poller.register(rep, zmq.POLLOUT)
            assert poller.poll(1000) == [(rep, zmq.POLLOUT)]
        """
    )


def test_pyzmqs_global_threshold_holds() -> None:
    _run(
        """
        import zmq

        zmq.COPY_THRESHOLD = 5
        with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
            assert socket.copy_threshold == 5
        small, large = zmq.Frame(b"1234", track=True), zmq.Frame(b"12345", track=True)
        assert small.tracker.done and not large.tracker.done
        """
    )


def test_its_errors_are_pyzmqs() -> None:
    _run(
        """
        import zmq

        with zmq.Context() as context, context.socket(zmq.PULL) as pull:
            for call, kind, number in (
                (lambda: pull.recv(zmq.NOBLOCK), zmq.Again, zmq.EAGAIN),
                (lambda: pull.bind("nonsense"), zmq.ZMQError, zmq.EINVAL),
                (lambda: pull.get(9999), zmq.ZMQError, zmq.EINVAL),
            ):
                try:
                    call()
                except kind as error:
                    assert error.errno == number, error
                else:
                    raise AssertionError(number)
        """
    )


def test_both_packages_live_in_one_process() -> None:
    _run(
        """
        import zmq
        import ropewalk.zmq as ours

        with zmq.Context() as a, ours.Context() as b:
            with a.socket(zmq.PUSH) as push, b.socket(ours.PULL) as pull:
                port = pull.bind_to_random_port("tcp://127.0.0.1")
                push.connect(f"tcp://127.0.0.1:{port}")
                push.send(b"across")
                assert pull.recv() == b"across"
                try:
                    pull.recv(ours.NOBLOCK)
                except ours.Again as error:
                    assert not isinstance(error, zmq.ZMQError)
                try:
                    push.get(9999)
                except zmq.ZMQError as error:
                    assert not isinstance(error, ours.ZMQError)
        """
    )


def test_asyncio_runs_on_it() -> None:
    _run(
        """
        import asyncio
        import zmq.asyncio

        async def main():
            with zmq.asyncio.Context() as context:
                with context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
                    port = router.bind_to_random_port("tcp://127.0.0.1")
                    dealer.connect(f"tcp://127.0.0.1:{port}")
                    for number in range(50):
                        waiting = asyncio.ensure_future(router.recv_multipart())
                        await dealer.send(b"%d" % number)
                        name, text = await asyncio.wait_for(waiting, 20)
                        await router.send_multipart([name, text])
                        assert await asyncio.wait_for(dealer.recv(), 20) == b"%d" % number

        asyncio.run(main())
        """
    )


def test_a_monitored_queue_swaps_addresses_between_routers() -> None:
    _run(
        """
        import threading
        import zmq
        from zmq.devices import monitored_queue

        context = zmq.Context()
        alice, bob, watcher = (context.socket(kind) for kind in (zmq.ROUTER, zmq.ROUTER, zmq.PUB))
        a, b, seen = (context.socket(kind) for kind in (zmq.DEALER, zmq.DEALER, zmq.SUB))
        a.identity, b.identity = b"a", b"b"
        for inner, outer, name in ((alice, a, "a"), (bob, b, "b"), (watcher, seen, "w")):
            inner.bind(f"inproc://{name}")
            outer.rcvtimeo = 20000
            if outer is seen:
                outer.subscribe(b"")
            outer.connect(f"inproc://{name}")

        def serve():
            try:
                monitored_queue(alice, bob, watcher, b"in", b"out")
            except zmq.ContextTerminated:
                for each in (alice, bob, watcher):
                    each.close(0)

        thread = threading.Thread(target=serve)
        thread.start()
        a.send_multipart([b"b", b"hello"])
        assert b.recv_multipart() == [b"a", b"hello"]
        assert seen.recv_multipart() == [b"in", b"b", b"a", b"hello"]
        b.send_multipart([b"a", b"hi"])
        assert a.recv_multipart() == [b"b", b"hi"]
        assert seen.recv_multipart() == [b"out", b"a", b"b", b"hi"]
        for each in (a, b, seen):
            each.close(0)
        context.term()
        thread.join(20)
        assert not thread.is_alive()
        """
    )
