"""The table of what of CPython's asyncio tests is not held against `ropewalk.Loop`, each with the reason.

A test is excluded only if it looks at a private part of the standard library's own loop. It is run all the same: an
entry for a test that passes or hangs, or for one that the interpreter does not have, is a failure. A module is left
out only if none of its tests makes a loop in any of the ways in which a program does.
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class Exclusion(NamedTuple):
    """One test: its module, class and name."""

    test: str
    reason: str
    #: The versions of Python on which it fails: from this one on, and before that one.
    since: tuple[int, ...] = (3, 11)
    until: tuple[int, ...] = (4,)

    @property
    def module(self) -> str:
        """The module that it is in."""
        return self.test.partition(".")[0]

    @property
    def applies(self) -> bool:
        """Whether the running interpreter should have the test, and fail it."""
        return self.since <= tuple(sys.version_info[:3]) < self.until


#: Modules that are not run, each with the reason.
LEFT_OUT = {
    "test_futures": "Futures alone, on a loop of the tests' own that is made of mocks.",
    "test_pep492": "Locks and coroutines on BaseEventLoop itself.",
    "test_proactor_events": "asyncio's loop for Windows, against mocks.",
    "test_protocols": "The abstract protocols; no loop.",
    "test_selector_events": "BaseSelectorEventLoop and its transports themselves, against mocks.",
    "test_tools": "The command `python -m asyncio ps`, on recorded data.",
    "test_transports": "The abstract transports; no loop.",
    "test_windows_events": "Skips itself as a whole: for Windows alone.",
    "test_windows_utils": "Skips itself as a whole: for Windows alone.",
}

#: CPython runs the loop mixins once with each selector; a loop without one runs them once, as `EPollEventLoopTests`.
DUPLICATES = frozenset(
    f"{module}.{case}"
    for module in ("test_events", "test_sendfile", "test_sock_lowlevel")
    for case in ("PollEventLoopTests", "SelectEventLoopTests")
)

#: The classes that ask for everything that a loop can do with a socket, a server, a pipe or a child: the loop mixins.
MIXINS = (
    "test_buffered_proto.BufferedProtocolSelectorTests",
    "test_events.EPollEventLoopTests",
    "test_sendfile.EPollEventLoopTests",
    "test_server.SelectorStartServerTests",
    "test_sock_lowlevel.EPollEventLoopTests",
)

_CONNECTIONS = "test_base_events.BaseEventLoopWithSelectorTests"
MOCKED_SOCKET = (
    "Puts a mock in place of base_events.socket, and takes the private _add_reader away so that asyncio never looks at "
    "the mock's descriptor; ours registers descriptors itself."
)
CHILD_WATCHER = (
    "Looks at asyncio's child watcher, gone in 3.14; ours has none, it watches a child's descriptor."
)
PRIVATE_WATCHER = "Looks at the private loop._watcher; ours has none, it watches a child's descriptor."
EXCLUSIONS = (
    Exclusion(f"{_CONNECTIONS}.test_create_connection_ip_addr", MOCKED_SOCKET),
    Exclusion(f"{_CONNECTIONS}.test_create_connection_ipv6_scope", MOCKED_SOCKET),
    Exclusion(f"{_CONNECTIONS}.test_create_connection_no_inet_pton", MOCKED_SOCKET),
    Exclusion(f"{_CONNECTIONS}.test_create_connection_service_name", MOCKED_SOCKET),
    Exclusion(f"{_CONNECTIONS}.test_create_datagram_endpoint_ip_addr", MOCKED_SOCKET),
    Exclusion(f"{_CONNECTIONS}.test_create_server_soreuseport_only_defined", MOCKED_SOCKET),
    Exclusion(
        "test_subprocess.GenericWatcherTests.test_create_subprocess_fails_with_inactive_watcher",
        CHILD_WATCHER,
        until=(3, 14),
    ),
    Exclusion(
        "test_subprocess.SubprocessPidfdWatcherTests.test_watcher_implementation",
        PRIVATE_WATCHER,
        since=(3, 14),
    ),
    Exclusion(
        "test_subprocess.SubprocessThreadedWatcherTests.test_watcher_implementation",
        PRIVATE_WATCHER,
        since=(3, 14),
    ),
)
