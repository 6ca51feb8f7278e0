"""A monitor's events of a socket's connections."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context
from ropewalk.zmq.utils.monitor import parse_monitor_message, recv_monitor_message


def test_a_message_is_parsed() -> None:
    event = parse_monitor_message([struct.pack("=Hi", zmq.EVENT_CONNECTED, 7), b"tcp://127.0.0.1:5555"])
    assert event == {"event": zmq.Event.CONNECTED, "value": 7, "endpoint": b"tcp://127.0.0.1:5555"}
    assert isinstance(event["event"], zmq.Event)


@pytest.mark.parametrize("parts", [[], [b"123456"], [b"12345", b""], [b"123456", b"", b""]])
def test_what_is_no_event_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(RuntimeError, match="not a message of a monitor"):
        parse_monitor_message(parts)


def test_both_ends_tell_how_they_came_together() -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
        server, client = rep.get_monitor_socket(), req.get_monitor_socket()
        with server, client:
            for monitor in (server, client):
                monitor.rcvtimeo = 20_000
            address = f"tcp://127.0.0.1:{rep.bind_to_random_port('tcp://127.0.0.1')}"
            req.connect(address)
            assert _until(server, zmq.Event.HANDSHAKE_SUCCEEDED)[:2] == [
                zmq.Event.LISTENING,
                zmq.Event.ACCEPTED,
            ]
            seen = _until(client, zmq.Event.HANDSHAKE_SUCCEEDED)
            assert zmq.Event.CONNECTED in seen
            req.close()
            assert zmq.Event.DISCONNECTED in _until(server, zmq.Event.DISCONNECTED)
            rep.disable_monitor()
            assert _until(server, zmq.Event.MONITOR_STOPPED)


def test_only_the_events_that_were_asked_for_come() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        with pull.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED) as monitor:
            monitor.rcvtimeo = 20_000
            push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
            assert recv_monitor_message(monitor)["event"] == zmq.Event.HANDSHAKE_SUCCEEDED
            pull.disable_monitor()


@pytest.mark.parametrize("run", [asyncio.run, ropewalk.run])
def test_events_can_be_awaited(run: Any) -> None:
    async def main() -> None:
        with Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
            with pull.get_monitor_socket() as monitor:
                pull.bind_to_random_port("tcp://127.0.0.1")
                push.connect(pull.last_endpoint)
                seen = []
                while zmq.Event.HANDSHAKE_SUCCEEDED not in seen:
                    event = await asyncio.wait_for(recv_monitor_message(monitor), 20)
                    seen.append(event["event"])
                    assert event["endpoint"].startswith(b"tcp://127.0.0.1:")
                assert seen[0] == zmq.Event.LISTENING
                pull.disable_monitor()

    run(main())


def _until(monitor: zmq.Socket[bytes], last: zmq.Event) -> list[int]:
    """The events up to this one."""
    seen: list[int] = []
    while last not in seen:
        seen.append(recv_monitor_message(monitor)["event"])
    return seen
