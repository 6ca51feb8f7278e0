"""Devices: messages pass from one end to the other, and the device ends when it should."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import ropewalk.zmq as zmq
from ropewalk.zmq.devices import (
    Device,
    Proxy,
    ThreadDevice,
    ThreadMonitoredQueue,
    ThreadProxy,
    ThreadProxySteerable,
    monitored_queue,
)

LOCAL = "tcp://127.0.0.1"


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """The instance, which devices in threads use too; it ends them."""
    context = zmq.Context.instance()
    context.rcvtimeo = 20_000
    context.linger = 0
    yield context
    context.destroy(linger=0)


def test_a_thread_device_joins_two_sockets(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    device = ThreadDevice(zmq.QUEUE, zmq.ROUTER, zmq.DEALER)
    device.setsockopt_in(zmq.IDENTITY, b"front")
    device.setsockopt_out(zmq.LINGER, 0)
    front = device.bind_in_to_random_port(LOCAL)
    with context.socket(zmq.REP) as server, context.socket(zmq.REQ) as client:
        device.connect_out(f"{LOCAL}:{server.bind_to_random_port(LOCAL)}")
        device.start()
        client.connect(f"{LOCAL}:{front}")
        client.send_multipart([b"a", b"b"])
        assert server.recv_multipart() == [b"a", b"b"]
        server.send(b"c")
        assert client.recv() == b"c"
        assert not device.done
    context.destroy(linger=0)
    device.join(20)
    assert device.done
    assert not device.launcher.is_alive()


def test_one_socket_may_be_both_ends(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    device = ThreadDevice(zmq.QUEUE, zmq.REP, -1)
    port = device.bind_in_to_random_port(LOCAL)
    device.start()
    with context.socket(zmq.REQ) as client:
        client.connect(f"{LOCAL}:{port}")
        client.send(b"echo")
        assert client.recv() == b"echo"


def test_a_device_runs_where_it_is_started(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    device = Device(zmq.STREAMER, zmq.PULL, zmq.PUSH)
    device.bind_in("inproc://in")
    device.bind_out("inproc://out")
    thread = threading.Thread(target=device.start)
    thread.start()
    with context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        push.connect("inproc://in")
        pull.connect("inproc://out")
        push.send(b"through")
        assert pull.recv() == b"through"
    context.destroy(linger=0)
    thread.join(20)
    assert device.done


def test_a_device_needs_its_types() -> None:
    with pytest.raises(TypeError, match="in_type and out_type"):
        Device(zmq.QUEUE, zmq.PULL)


def test_an_error_of_a_device_is_raised(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    device = Device(zmq.STREAMER, zmq.PULL, zmq.PUSH)
    device.bind_in("nonsense://")
    with pytest.raises(zmq.ZMQError):
        device.start()
    assert device.done


def test_a_proxy_tells_what_passes(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    proxy = ThreadProxy(zmq.PULL, zmq.PUSH, zmq.PUSH)
    with (
        context.socket(zmq.PUSH) as push,
        context.socket(zmq.PULL) as pull,
        context.socket(zmq.PULL) as copies,
    ):
        proxy.setsockopt_mon(zmq.SNDHWM, 10)
        proxy.connect_mon(f"{LOCAL}:{copies.bind_to_random_port(LOCAL)}")
        push.connect(f"{LOCAL}:{proxy.bind_in_to_random_port(LOCAL)}")
        pull.connect(f"{LOCAL}:{proxy.bind_out_to_random_port(LOCAL)}")
        proxy.start()
        push.send_multipart([b"a", b"b"])
        assert pull.recv_multipart() == copies.recv_multipart() == [b"a", b"b"]


def test_kinds_of_devices_are_kinds_of_devices() -> None:
    assert issubclass(Proxy, Device)
    assert issubclass(ThreadProxySteerable, ThreadDevice)


def test_a_steerable_proxy_obeys(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    proxy = ThreadProxySteerable(zmq.PULL, zmq.PUSH, zmq.PUB, zmq.PAIR)
    with (
        context.socket(zmq.PUSH) as push,
        context.socket(zmq.PULL) as pull,
        context.socket(zmq.PAIR) as control,
    ):
        push.connect(f"{LOCAL}:{proxy.bind_in_to_random_port(LOCAL)}")
        pull.connect(f"{LOCAL}:{proxy.bind_out_to_random_port(LOCAL)}")
        proxy.bind_mon_to_random_port(LOCAL)
        control.connect(f"{LOCAL}:{proxy.bind_ctrl_to_random_port(LOCAL)}")
        proxy.start()
        push.send(b"1")
        assert pull.recv() == b"1"
        control.send(b"PAUSE")
        control.send(b"STATISTICS")
        # Its answer tells that it has heard the commands before.
        assert control.recv_multipart()
        push.send(b"2")
        assert pull.poll(100) == 0
        control.send(b"RESUME")
        assert pull.recv() == b"2"
        control.send(b"TERMINATE")
        proxy.join(20)
        assert proxy.done


def test_a_monitored_queue_tells_directions(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    queue = ThreadMonitoredQueue(zmq.ROUTER, zmq.DEALER, zmq.PUSH, b"asked", b"answered")
    with (
        context.socket(zmq.REQ) as client,
        context.socket(zmq.REP) as server,
        context.socket(zmq.PULL) as copies,
    ):
        client.setsockopt(zmq.IDENTITY, b"me")
        queue.connect_mon(f"{LOCAL}:{copies.bind_to_random_port(LOCAL)}")
        client.connect(f"{LOCAL}:{queue.bind_in_to_random_port(LOCAL)}")
        server.connect(f"{LOCAL}:{queue.bind_out_to_random_port(LOCAL)}")
        queue.start()
        client.send(b"q")
        assert server.recv() == b"q"
        server.send(b"a")
        assert client.recv() == b"a"
        assert copies.recv_multipart() == [b"asked", b"me", b"", b"q"]
        assert copies.recv_multipart() == [b"answered", b"me", b"", b"a"]


def test_between_routers_the_sender_names_the_receiver(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    ins, outs, copies = (context.socket(kind) for kind in (zmq.ROUTER, zmq.ROUTER, zmq.PUB))
    alice, bob = context.socket(zmq.DEALER), context.socket(zmq.DEALER)
    alice.setsockopt(zmq.IDENTITY, b"alice")
    bob.setsockopt(zmq.IDENTITY, b"bob")
    ends: list[BaseException] = []

    def run() -> None:
        try:
            monitored_queue(ins, outs, copies)
        except zmq.ZMQError as error:
            ends.append(error)
        finally:
            for each in (ins, outs, copies):
                each.close(0)

    for router, dealer, name in ((ins, alice, "in"), (outs, bob, "out")):
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.bind(f"inproc://{name}")
        dealer.connect(f"inproc://{name}")
        # Each side's router knows its peer before anything is sent to it.
        dealer.send(b"hello")
        assert router.recv_multipart()[1] == b"hello"
    thread = threading.Thread(target=run)
    thread.start()
    alice.send_multipart([b"bob", b"hi"])
    assert bob.recv_multipart() == [b"alice", b"hi"]
    bob.send_multipart([b"alice", b"hey"])
    assert alice.recv_multipart() == [b"bob", b"hey"]
    alice.close(0)
    bob.close(0)
    context.term()
    thread.join(20)
    assert isinstance(ends[0], zmq.ContextTerminated)


_PROGRAM = """
import ropewalk.zmq as zmq
from ropewalk.zmq.devices import ProcessDevice

if __name__ == "__main__":
    device = ProcessDevice(zmq.STREAMER, zmq.PULL, zmq.PUSH)
    front = device.bind_in_to_random_port("tcp://127.0.0.1")
    back = device.bind_out_to_random_port("tcp://127.0.0.1")
    device.start()
    with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        push.connect(f"tcp://127.0.0.1:{front}")
        pull.connect(f"tcp://127.0.0.1:{back}")
        pull.rcvtimeo = 20_000
        push.send(b"through another process")
        print(pull.recv().decode())
    device.launcher.terminate()
    device.join(20)
"""


def test_a_process_device_has_a_context_of_its_own(tmp_path: object) -> None:
    program = f"{tmp_path}/program.py"
    with open(program, "w") as file:
        file.write(_PROGRAM)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "through another process\n", done.stderr
