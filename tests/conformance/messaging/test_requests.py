"""REQ and REP: the order of requests and replies, and the options that relax it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.messaging.lab import Side, bind, link
from tests.polling import until


def refused(side: Side, call: Any, *arguments: Any) -> None:
    """The call is out of turn."""
    with pytest.raises(side.zmq.ZMQError) as error:
        call(*arguments)
    assert error.value.errno == side.zmq.EFSM


def test_out_of_turn(subject: Side, peer: Side) -> None:
    req, rep = subject.socket("REQ"), peer.socket("REP")
    link(rep, req)
    refused(subject, req.recv)
    refused(peer, rep.send, b"unasked")
    req.send(b"question")
    refused(subject, req.send, b"another")
    assert peer.receive(rep) == [b"question"]
    refused(peer, rep.recv)
    rep.send(b"answer")
    assert subject.receive(req) == [b"answer"]
    refused(subject, req.recv)


def test_in_the_middle_of_a_message(subject: Side, peer: Side) -> None:
    req, rep = subject.socket("REQ"), peer.socket("REP")
    link(rep, req)
    req.send(b"one", subject.zmq.SNDMORE)
    refused(subject, req.recv)
    req.send(b"two")
    assert rep.recv() == b"one"
    refused(peer, rep.send, b"too early")
    assert rep.recv() == b"two"
    rep.send(b"answer")
    assert subject.receive(req) == [b"answer"]


@pytest.mark.parametrize(
    "wrong", [[b"no delimiter"], [b"no delimiter", b"", b"either"]], ids=["one", "three"]
)
def test_an_answer_without_its_delimiter_is_none(wrong: list[bytes], subject: Side, peer: Side) -> None:
    req, router = subject.socket("REQ"), peer.socket("ROUTER")
    watch = peer.watch(router)
    link(router, req)
    req.send(b"question")
    name, empty, _ = peer.receive(router)
    assert empty == b""
    router.send_multipart([name, *wrong])
    router.send_multipart([name, b"", b"answer"])
    # Passing over it is right, and so is leaving a peer that answers so; libzmq leaves.
    until(lambda: subject.readable(req) or watch.has("DISCONNECTED"))
    assert subject.try_receive(req) in (None, [b"answer"])


def test_a_request_without_its_delimiter_is_none(subject: Side, peer: Side) -> None:
    rep, dealer = subject.socket("REP"), peer.socket("DEALER")
    link(rep, dealer)
    dealer.send(b"no delimiter")
    dealer.send_multipart([b"no", b"delimiter", b"either"])
    dealer.send_multipart([b"", b"question"])
    assert subject.receive(rep) == [b"question"]
    rep.send(b"answer")
    assert peer.receive(dealer) == [b"", b"answer"]


def test_only_the_one_who_was_asked_answers(subject: Side, peer: Side) -> None:
    req = subject.socket("REQ")
    routers = [peer.socket("ROUTER") for _ in range(2)]
    for router in routers:
        link(router, req)
    names: dict[int, bytes] = {}
    for turn in range(2):
        req.send(b"%d" % turn)
        name, _, body = peer.receive(routers[turn])
        assert body == b"%d" % turn
        names[turn] = name
        if turn == 1:
            # Requests go round: the first was not asked this time.
            routers[0].send_multipart([names[0], b"", b"unasked"])
        routers[turn].send_multipart([name, b"", b"answer %d" % turn])
        assert subject.receive(req) == [b"answer %d" % turn]


def test_a_second_answer_is_none(subject: Side, peer: Side) -> None:
    req, router = subject.socket("REQ"), peer.socket("ROUTER")
    link(router, req)
    for turn in range(5):
        req.send(b"%d" % turn)
        name, _, body = peer.receive(router)
        assert body == b"%d" % turn
        for _ in range(3):
            router.send_multipart([name, b"", b"answer to " + body])
        answers = {answer for [answer] in [subject.receive(req)]}
        assert answers <= {b"answer to %d" % earlier for earlier in range(turn + 1)}


def test_relaxed_asks_again(subject: Side, peer: Side) -> None:
    req, router = subject.socket("REQ", REQ_RELAXED=1, REQ_CORRELATE=1), peer.socket("ROUTER")
    link(router, req)
    asked = []
    for turn in range(3):
        req.send(b"%d" % turn)
        asked.append(peer.receive(router))
    for name, request, empty, body in asked:
        assert len(request) == 4
        assert empty == b""
        # What answers a question that is no longer asked is dropped.
        router.send_multipart([name, request, b"", b"answer to " + body])
    assert subject.receive(req) == [b"answer to 2"]
    refused(subject, req.recv)


def test_correlated_drops_what_answers_nothing(subject: Side, peer: Side) -> None:
    req, router = subject.socket("REQ", REQ_CORRELATE=1), peer.socket("ROUTER")
    link(router, req)
    req.send(b"question")
    name, request, _, _ = peer.receive(router)
    router.send_multipart([name, b"", b"no number"])
    router.send_multipart([name, bytes(4 * [request[0] ^ 0xFF]), b"", b"another number"])
    router.send_multipart([name, request, b"", b"answer"])
    assert subject.receive(req) == [b"answer"]


def test_relaxed_with_a_rep(subject: Side, peer: Side) -> None:
    req, rep = subject.socket("REQ", REQ_RELAXED=1, REQ_CORRELATE=1), peer.socket("REP")
    link(rep, req)
    for turn in range(10):
        req.send(b"%d" % turn)
        assert peer.receive(rep) == [b"%d" % turn]
        rep.send(b"answer to %d" % turn)
        assert subject.receive(req) == [b"answer to %d" % turn]


def test_an_answer_to_somebody_who_has_left(subject: Side, peer: Side) -> None:
    rep = subject.socket("REP")
    watch = subject.watch(rep)
    endpoint = bind(rep)
    leaving = peer.socket("REQ")
    leaving.connect(endpoint)
    leaving.send(b"question")
    assert subject.receive(rep) == [b"question"]
    leaving.close(linger=0)
    watch.until("DISCONNECTED")
    rep.send(b"answer")
    staying = peer.socket("REQ")
    staying.connect(endpoint)
    staying.send(b"another")
    assert subject.receive(rep) == [b"another"]
    rep.send(b"its answer")
    assert peer.receive(staying) == [b"its answer"]


def test_questions_go_round(subject: Side, peer: Side) -> None:
    req = subject.socket("REQ")
    reps = [peer.socket("REP") for _ in range(3)]
    for rep in reps:
        link(rep, req)
    for turn in range(9):
        req.send(b"%d" % turn)
        rep = reps[turn % 3]
        assert peer.receive(rep) == [b"%d" % turn]
        rep.send(b"answer")
        assert subject.receive(req) == [b"answer"]
