"""Many peers: fair queueing of what is received, and even distribution of what is sent."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest
from tests.conformance.messaging.lab import Side, address, background, bind, link
from tests.polling import until


def attached(side: Side, watch: Any, count: int) -> None:
    """Waits until so many peers have shaken hands."""
    for _ in range(count):
        watch.until("HANDSHAKE_SUCCEEDED")


@pytest.mark.parametrize("kind", ["PUSH", "DEALER"])
def test_work_is_shared_out_evenly(kind: str, subject: Side, peer: Side) -> None:
    sender = subject.socket(kind)
    watch = subject.watch(sender)
    endpoint = bind(sender)
    workers = [peer.socket("PULL" if kind == "PUSH" else "DEALER") for _ in range(3)]
    for worker in workers:
        worker.connect(endpoint)
    attached(subject, watch, 3)
    assert subject.writable(sender)
    for number in range(300):
        sender.send_multipart([b"%d" % number, b"second"])
    shares = [[int(peer.receive(worker)[0]) for _ in range(100)] for worker in workers]
    assert sorted(itertools.chain(*shares)) == list(range(300))
    for share in shares:
        assert {later - earlier for earlier, later in itertools.pairwise(share)} == {3}


def test_who_is_full_is_passed_over(alone: Side) -> None:
    push = alone.socket("PUSH", SNDHWM=1)
    small, large = alone.socket("PULL", RCVHWM=1), alone.socket("PULL", RCVHWM=99)
    link(small, push, "inproc")
    link(large, push, "inproc")
    for number in range(102):
        assert alone.try_send(push, b"%d" % number)
    assert not alone.try_send(push, b"too many")
    received = []
    for socket in (small, large):
        while message := alone.try_receive(socket):
            received.append(int(message[0]))
    assert sorted(received) == list(range(102))


def test_everybody_is_heard_in_turn(alone: Side) -> None:
    pull = alone.socket("PULL")
    endpoint = bind(pull, "inproc")
    pushes = [alone.socket("PUSH") for _ in range(3)]
    for name, push in enumerate(pushes):
        push.connect(endpoint)
        for _ in range(30):
            push.send_multipart([b"%d" % name, b"second"])
    heard = [int(alone.receive(pull)[0]) for _ in range(90)]
    # The first round may begin before all are known.
    for start in range(3, 84):
        assert set(heard[start : start + 3]) == {0, 1, 2}, heard


@pytest.mark.parametrize("transport", ["tcp", "inproc"])
def test_nobody_is_drowned_out(transport: str, subject: Side, peer: Side) -> None:
    if transport == "inproc":
        peer = subject
    pull = subject.socket("PULL", RCVHWM=10)
    endpoint = bind(pull, transport)
    loud, quiet = peer.socket("PUSH", SNDHWM=10), [peer.socket("PUSH") for _ in range(2)]
    loud.connect(endpoint)
    done = False

    def flood() -> None:
        while not done:
            peer.try_send(loud, b"loud")

    with background(flood):
        assert subject.receive(pull) == [b"loud"]
        for socket in quiet:
            socket.connect(endpoint)
            for number in range(10):
                socket.send(b"%d" % number)
        heard = 0
        while heard < 20:
            heard += subject.receive(pull) != [b"loud"]
        done = True


def test_a_dealer_asks_in_turn_and_hears_all(subject: Side, peer: Side) -> None:
    dealer = subject.socket("DEALER")
    reps = [peer.socket("REP") for _ in range(3)]
    for rep in reps:
        link(rep, dealer)
    for number in range(30):
        dealer.send_multipart([b"", b"%d" % number])
    for turn in range(10):
        for name, rep in enumerate(reps):
            assert peer.receive(rep) == [b"%d" % (3 * turn + name)]
            rep.send(b"%d" % (3 * turn + name))
    answers = {int(subject.receive(dealer)[1]) for _ in range(30)}
    assert answers == set(range(30))


def test_a_pair_has_one_peer(subject: Side, peer: Side) -> None:
    pair = subject.socket("PAIR")
    watch = subject.watch(pair)
    endpoint = bind(pair)
    first, second = peer.socket("PAIR"), peer.socket("PAIR")
    first.connect(endpoint)
    first.send(b"first")
    assert subject.receive(pair) == [b"first"]
    second.connect(endpoint)
    second.send(b"second")
    watch.until("ACCEPTED")
    watch.until("ACCEPTED")
    for number in range(20):
        pair.send(b"%d" % number)
        assert peer.receive(first) == [b"%d" % number]
    assert subject.try_receive(pair) is None


def test_one_socket_binds_and_connects_many(subject: Side, peer: Side) -> None:
    pull = subject.socket("PULL")
    endpoints = [bind(pull, transport) for transport in ("tcp", "ipc", "tcp")]
    inside = address("inproc")
    pull.bind(inside)
    senders = []
    for endpoint in endpoints:
        senders.append(peer.socket("PUSH"))
        senders[-1].connect(endpoint)
    for transport in ("tcp", "ipc"):
        senders.append(peer.socket("PUSH"))
        link(senders[-1], pull, transport)
    neighbour = subject.socket("PUSH")
    neighbour.connect(inside)
    senders.append(neighbour)
    for number, sender in enumerate(senders):
        sender.send(b"%d" % number)
    assert {int(subject.receive(pull)[0]) for _ in senders} == set(range(len(senders)))


def test_one_socket_twice_at_one_peer(subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH"), peer.socket("PULL")
    endpoint = link(pull, push)
    push.connect(endpoint)
    watch = peer.watch(pull)
    for number in range(10):
        push.send(b"%d" % number)
    assert {int(peer.receive(pull)[0]) for _ in range(10)} == set(range(10))
    # Leaving an endpoint leaves it as often as it was joined.
    push.disconnect(endpoint)
    until(lambda: not subject.writable(push) and watch.has("DISCONNECTED"))
    watch.until("DISCONNECTED")
    with pytest.raises(subject.zmq.ZMQError) as gone:
        push.disconnect(endpoint)
    assert gone.value.errno == errno.ENOENT
