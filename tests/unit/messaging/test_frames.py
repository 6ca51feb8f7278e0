"""Frames and trackers: bytes that are shared instead of copied."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.polling import until

import ropewalk.zmq as zmq

Pairing = Callable[..., tuple[Any, Any]]
#: Larger than what is copied all the same.
LARGE = zmq.COPY_THRESHOLD * 2


def test_a_frame_shows_its_bytes() -> None:
    frame = zmq.Frame(b"content")
    assert frame.bytes == bytes(frame) == b"content"
    assert len(frame) == 7
    assert memoryview(frame) == frame.buffer == b"content"
    assert frame.bytes is frame.bytes
    assert not frame.more
    assert zmq.Message is zmq.Frame


def test_an_empty_frame() -> None:
    for frame in (zmq.Frame(), zmq.Frame(b"")):
        assert len(frame) == 0
        assert frame.bytes == b""


def test_a_frame_of_text_is_refused() -> None:
    with pytest.raises(TypeError):
        zmq.Frame("text")
    with pytest.raises(TypeError):
        zmq.Frame(5)


def test_repr_shows_the_beginning() -> None:
    assert repr(zmq.Frame(b"short")).endswith("Frame(b'short')>")
    assert repr(zmq.Frame(b"x" * 17)).endswith("Frame(b'xxxxxxxxxxxx'...17B)>")
    assert "...2kB" in repr(zmq.Frame(b"x" * 2500))
    assert "...3MB" in repr(zmq.Frame(b"x" * 3_000_000))


def test_a_frame_shares_what_is_large() -> None:
    data = bytearray(b"a" * LARGE)
    shared, copied = zmq.Frame(data, copy=False), zmq.Frame(data, copy=True)
    data[0] = ord("b")
    assert shared.buffer[0] == ord("b")
    assert copied.buffer[0] == ord("a")


def test_copies_of_a_frame_share_its_bytes() -> None:
    frame = zmq.Frame(b"z" * LARGE, copy=False, track=True)
    other = copy.copy(frame)
    assert type(other) is zmq.Frame
    assert other.bytes == frame.bytes
    assert other.tracker is frame.tracker


def test_a_received_frame_outlives_its_socket(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send(b"k" * LARGE)
    frame = bound.recv(copy=False)
    view = frame.buffer
    bound.close()
    connected.close()
    del frame
    gc.collect()
    assert bytes(view) == b"k" * LARGE


def test_a_frame_is_sent_again(pair: Pairing) -> None:
    bound, connected = pair()
    frame = zmq.Frame(b"again")
    for _ in range(3):
        connected.send(frame)
    connected.send_multipart([frame, frame], copy=False)
    assert [bound.recv() for _ in range(3)] == [b"again"] * 3
    assert bound.recv_multipart() == [b"again", b"again"]


def test_a_tracked_message_is_done_when_it_was_let_go(pair: Pairing) -> None:
    bound, connected = pair()
    tracker = connected.send(bytearray(LARGE), copy=False, track=True)
    assert isinstance(tracker, zmq.MessageTracker)
    assert len(bound.recv()) == LARGE
    tracker.wait(20)
    assert tracker.done


def test_a_tracked_frame_is_not_done_while_it_lives() -> None:
    frame = zmq.Frame(bytearray(LARGE), copy=False, track=True)
    tracker = frame.tracker
    assert not tracker.done
    with pytest.raises(zmq.NotDone):
        tracker.wait(0.001)
    del frame
    gc.collect()
    tracker.wait(20)
    assert tracker.done


def test_what_was_copied_is_done_at_once(pair: Pairing) -> None:
    bound, connected = pair()
    tracker = connected.send(b"small", copy=False, track=True)
    assert tracker.done
    assert zmq.Frame(b"small", track=True).tracker.done
    assert zmq.Frame(b"small").tracker is None
    assert bound.recv() == b"small"


@pytest.mark.parametrize("nothing_copied", [0, None])
def test_a_program_sets_the_size_from_which_nothing_is_copied(
    pair: Pairing, monkeypatch: pytest.MonkeyPatch, nothing_copied: int | None
) -> None:
    monkeypatch.setattr(zmq, "COPY_THRESHOLD", 5)
    frame, larger = zmq.Frame(b"1234", track=True), zmq.Frame(b"12345", track=True)
    assert (frame.tracker.done, larger.tracker.done) == (True, False)
    monkeypatch.setattr(zmq, "COPY_THRESHOLD", nothing_copied)
    frame = zmq.Frame(b"1", track=True)
    assert not frame.tracker.done
    assert zmq.Frame(b"1", track=True, copy_threshold=2).tracker.done
    bound, connected = pair()
    assert (bound.copy_threshold, connected.copy_threshold) == (0, 0)


def test_an_untracked_frame_cannot_be_tracked(pair: Pairing) -> None:
    _, connected = pair()
    with pytest.raises(ValueError, match="track"):
        connected.send(zmq.Frame(b"x"), copy=False, track=True)


def test_the_buffer_is_given_back(pair: Pairing) -> None:
    bound, connected = pair()
    data = bytearray(LARGE)
    connected.send(data, copy=False)
    assert len(bound.recv()) == LARGE

    def resizable() -> bool:
        try:
            data.append(0)
        except BufferError:
            return False
        return True

    until(resizable)


def test_trackers_watch_trackers() -> None:
    first, second = threading.Event(), threading.Event()
    tracker = zmq.MessageTracker(first, zmq.MessageTracker(second))
    assert not tracker.done
    first.set()
    assert not tracker.done
    with pytest.raises(zmq.NotDone):
        tracker.wait(0)
    second.set()
    assert tracker.done
    tracker.wait()
    assert zmq.MessageTracker().done


def test_a_tracker_watches_nothing_else() -> None:
    with pytest.raises(ValueError, match="tracked"):
        zmq.MessageTracker(zmq.Frame(b"untracked"))
    with pytest.raises(TypeError):
        zmq.MessageTracker(b"bytes")  # type: ignore[arg-type]


def test_properties_of_what_was_received(pair: Pairing) -> None:
    bound, connected = pair(zmq.ROUTER, zmq.DEALER)
    connected.send(b"who am I?")
    frame = bound.recv_multipart(copy=False)[-1]
    assert frame["Socket-Type"] == frame.get("Socket-Type") == "DEALER"
    assert frame["Peer-Address"] == "127.0.0.1"
    assert frame.get(zmq.MORE) == 0
    with pytest.raises(zmq.ZMQError) as caught:
        _ = frame["X-Nothing"]
    assert caught.value.errno == zmq.EINVAL


def test_unknown_attributes_are_refused() -> None:
    frame = zmq.Frame(b"")
    with pytest.raises(AttributeError):
        frame.no_such_option = 1
    assert not hasattr(frame, "no_such_option")


class Content(bytearray):
    """Bytes that can hold what shows them."""

    held: Any = None


def _frame_of(content: Content) -> Any:
    return zmq.Frame(content, copy=False, track=True)


@pytest.mark.parametrize(
    "close",
    [
        lambda content: _frame_of(content),
        lambda content: copy.copy(_frame_of(content)),
        lambda content: [copy.copy(copy.copy(frame := _frame_of(content))), frame],
        lambda content: _frame_of(content).buffer,
        lambda content: copy.copy(_frame_of(content)).buffer,
        lambda content: zmq.Frame(_frame_of(content), copy=False),
    ],
    ids=["frame", "copy", "copies", "view", "view-of-copy", "over-a-frame"],
)
def test_a_cycle_through_shared_bytes_is_collected(close: Callable[[Content], Any]) -> None:
    gc.collect()
    content = Content(LARGE)
    content.held = close(content)
    gone = weakref.ref(content)
    del content
    assert gone() is not None

    def collected() -> bool:
        gc.collect()
        return gone() is None

    until(collected)


def test_a_cycle_through_a_view_that_is_shared_is_left_alone() -> None:
    """CPython's memoryview cannot be taken apart by the collector while somebody else has its buffer."""
    content = Content(LARGE)
    content.held = zmq.Frame(memoryview(content), copy=False)
    gone = weakref.ref(content)
    del content
    for _ in range(3):
        gc.collect()
    content = gone()
    assert content is not None
    assert len(content.held) == LARGE
    content.held = None
    del content

    def collected() -> bool:
        gc.collect()
        return gone() is None

    until(collected)


def test_what_is_being_sent_is_not_collected(context: Any) -> None:
    endpoint = f"inproc://{id(context)}-held"
    push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    content = Content(b"s" * LARGE)
    content.held = zmq.Frame(content, copy=False)
    push.connect(endpoint)
    push.send(content.held)
    gone = weakref.ref(content)
    del content
    for _ in range(3):
        gc.collect()
    content = gone()
    assert content is not None
    assert len(content.held) == LARGE
    del content
    pull.bind(endpoint)
    assert pull.recv() == b"s" * LARGE

    def collected() -> bool:
        gc.collect()
        return gone() is None

    until(collected)


def test_a_view_keeps_the_bytes_of_a_frame_that_is_gone() -> None:
    view = copy.copy(zmq.Frame(Content(b"v" * LARGE), copy=False)).buffer
    gc.collect()
    assert bytes(view) == b"v" * LARGE
    view.release()


def test_a_frame_is_made_once() -> None:
    for data in (b"x", Content(LARGE)):
        frame = zmq.Frame(data, copy=False)
        for again in (frame, copy.copy(frame)):
            with pytest.raises((RuntimeError, TypeError, ValueError)):
                again.__init__(b"y")  # type: ignore[misc]
            assert len(again) == len(data)


@pytest.mark.parametrize("size", [1, 71, 72, 5_000, LARGE])
def test_what_was_received_can_be_written(size: int, pair: Pairing) -> None:
    bound, connected = pair(endpoint="tcp://127.0.0.1:*")
    for _ in range(2):
        connected.send(b"a" * size)
        connected.send(b"b" * size)
        frames = [bound.recv(copy=False), bound.recv(copy=False)]
        views = [frame.buffer for frame in frames]
        assert not any(view.readonly for view in views)
        views[0][-1] = ord("c")
        # The view, the frame, and what it is sent as are the same bytes; its neighbours' are not.
        assert bytes(frames[0]) == frames[0].bytes == b"a" * (size - 1) + b"c"
        assert frames[1].bytes == b"b" * size
        connected.send(frames[0])
        assert bound.recv() == b"a" * (size - 1) + b"c"


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_copied_frame_can_be_written(size: int) -> None:
    content = b"a" * size
    frame = zmq.Frame(content, copy=True)
    frame.buffer[0] = ord("b")
    assert frame.bytes == b"b" + content[1:]
    assert content == b"a" * size
    assert copy.copy(frame).bytes == frame.bytes


@pytest.mark.parametrize("size", [10, LARGE])
def test_what_others_have_cannot_be_written(size: int, pair: Pairing) -> None:
    content = b"a" * size
    assert zmq.Frame(content, copy=False).buffer.readonly
    bound, connected = pair(endpoint="inproc://others")
    connected.send(content, copy=False)
    frame = bound.recv(copy=False)
    if size == LARGE:
        # These are the bytes of the sender's object.
        assert frame.buffer.readonly
    else:
        frame.buffer[0] = ord("b")
    assert content == b"a" * size


@pytest.mark.parametrize("size", [10, 1_000, LARGE])
def test_what_was_sent_on_cannot_be_written(size: int, pair: Pairing) -> None:
    bound, connected = pair(endpoint="tcp://127.0.0.1:*")
    inside, sender = pair(endpoint="inproc://on")
    for give in (sender.send, copy.copy):
        connected.send(b"a" * size)
        frame = bound.recv(copy=False)
        other = give(frame) or inside.recv(copy=False)
        for each in (frame, other):
            view = each.buffer
            if not view.readonly:
                view[0] = ord("b" if each is frame else "c")
        # What one of them has written, the other does not see.
        assert size == 10 or frame.buffer.readonly
        assert (frame.bytes, other.bytes) in [
            (b"a" * size, b"a" * size),
            (b"b" + b"a" * (size - 1), b"c" + b"a" * (size - 1)),
        ]


def test_a_received_array_is_changed_in_place(pair: Pairing) -> None:
    numpy = pytest.importorskip("numpy")
    bound, connected = pair(endpoint="tcp://127.0.0.1:*")
    connected.send(numpy.arange(10_000.0), copy=False)
    array = numpy.frombuffer(bound.recv(copy=False))
    array += 1
    assert array[-1] == 10_000


def test_the_threshold_says_what_is_shared(context: Any) -> None:
    sender = context.socket(zmq.PUSH, copy_threshold=0)
    # Nobody listens: the message is not sent.
    sender.connect("tcp://127.0.0.1:1")
    for data in (b"small", bytearray(b"small"), b"x" * 5_000):
        tracker = sender.send_multipart([data, data], copy=False, track=True)
        assert not tracker.done
    sender.copy_threshold = 6
    assert sender.send(b"small", copy=False, track=True).done
    tracker = sender.send(b"larger", copy=False, track=True)
    assert not tracker.done
    sender.close(linger=0)
    tracker.wait(20)


@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
def test_small_messages_that_are_shared_arrive(mechanism: str, context: Any) -> None:
    sender, receiver = context.socket(zmq.PUSH, copy_threshold=0), context.socket(zmq.PULL)
    if mechanism == "CURVE":
        public, secret = zmq.curve_keypair()
        receiver.curve_server, receiver.curve_secretkey = True, secret
        sender.curve_serverkey = public
        sender.curve_publickey, sender.curve_secretkey = zmq.curve_keypair()
    port = receiver.bind_to_random_port("tcp://127.0.0.1")
    sender.connect(f"tcp://127.0.0.1:{port}")
    messages = [[b"%d" % number, b"", b"x" * number] for number in range(200)]
    trackers = [sender.send_multipart(message, copy=False, track=True) for message in messages]
    assert [receiver.recv_multipart() for _ in messages] == messages
    for tracker in trackers:
        tracker.wait(20)
