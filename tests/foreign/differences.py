"""The table of what is expected to differ on ours from the reference of a foreign suite, each with its reason.

A test that fails on the reference as well is not listed: it is no difference. An entry whose test no longer differs is
reported, and so is a difference that has no entry. The reference of uvloop's suite is uvloop, which is why that part of
the table is long: where asyncio and uvloop disagree, ours does as asyncio does.
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class Difference(NamedTuple):
    """A test of a suite, which fails or is skipped on ours alone; without parameters, any of the test's variants."""

    suite: str
    test: str
    reason: str
    #: The versions of Python on which it differs: from this one on, and before that one.
    since: tuple[int, ...] = (3, 11)
    until: tuple[int, ...] = (4,)
    #: Whether it may as well pass.
    by_chance: bool = False
    #: Whether it hangs, so that it gets little time.
    hangs: bool = False

    @property
    def applies(self) -> bool:
        """Whether the running interpreter should show it."""
        return self.since <= tuple(sys.version_info[:3]) < self.until


# --- uvloop ------------------------------------------------------------------------------------------------------

_UV = "tests/test_{}.py::{}"
_CONTEXT = (
    "asyncio calls a protocol in the context of the call that caused it, such as `transport.close()` or `write()`; "
    "uvloop always in the one that made the transport. The test fails on asyncio."
)
_KEPT_OPEN = (
    "uvloop keeps the file of a socket open until the pending operation ends, though the program has closed the "
    "socket; on asyncio the operation waits for ever. The test fails or hangs on asyncio."
)
_REUSE = (
    "asyncio has no parameter `reuse_address` of `create_datagram_endpoint` since 3.11; uvloop accepts it."
)
_SHUTDOWN = (
    "uvloop's TLS shutdown reads and drops what the peer still sends; asyncio's sslproto, which ours uses, does not. "
    "The test is skipped on asyncio, and fails there if it is not."
)


def _uvloop(
    module: str,
    test: str,
    reason: str,
    *,
    hangs: bool = False,
    since: tuple[int, ...] = (3, 11),
    until: tuple[int, ...] = (4,),
) -> Difference:
    return Difference("uvloop", _UV.format(module, test), reason, since, until, hangs=hangs)


_UVLOOP = (
    # Names of uvloop's own.
    _uvloop(
        "base",
        "TestBaseUV::test_thread_name_prefix_in_default_executor",
        "Asks that the threads of the executor are called `uvloop`.",
    ),
    _uvloop("fs_event", "Test_UV_FS_Event::test_fs_event_change", "uvloop's private `_monitor_fs`."),
    _uvloop("fs_event", "Test_UV_FS_Event::test_fs_event_rename", "uvloop's private `_monitor_fs`."),
    _uvloop("libuv_api", "Test_UV_libuv::test_libuv_get_loop_t_ptr", "Asks for libuv's own structure."),
    _uvloop(
        "process",
        "Test_UV_Process::test_process_double_close",
        "Counts the calls of `os.pipe`, `os.dup` and `os.close` that uvloop makes for a child process.",
    ),
    _uvloop(
        "process",
        "Test_UV_Process_Delayed::test_process_delayed_stdio__paused__no_stdin",
        "uvloop's private argument `__uvloop_sleep_after_fork`.",
    ),
    _uvloop(
        "process",
        "Test_UV_Process_Delayed::test_process_delayed_stdio__paused__stdin_pipe",
        "uvloop's private argument `__uvloop_sleep_after_fork`.",
    ),
    _uvloop(
        "signals",
        "Test_UV_Signals::test_signals_no_SIGCHLD",
        "uvloop refuses a handler of SIGCHLD, which libuv uses; on asyncio and ours a program may have one.",
    ),
    _uvloop(
        "sockets",
        "TestUVSockets::test_pseudosocket",
        "Asks for the `repr` of uvloop's `PseudoSocket`; ours is `asyncio.trsock.TransportSocket`.",
    ),
    _uvloop("sockets", "TestUVSockets::test_socket_sync_remove", "uvloop's private `_get_backend_id`."),
    _uvloop(
        "tcp",
        "Test_UV_TCP::test_transport_get_extra_info",
        "Reads the private `_paused` and `_closing` of the transport; `is_reading` and `is_closing` are public.",
    ),
    _uvloop(
        "tcp",
        "Test_UV_TCPSSL::test_flush_before_shutdown",
        "Asks the transport for `uvloop.sslproto`.",
    ),
    # What uvloop does and asyncio does not.
    _uvloop(
        "base",
        "TestBaseUV::test_set_task_name",
        "uvloop calls `set_name` of the task that the factory has made; since 3.13.3 asyncio gives the factory the "
        "name. On asyncio the test makes the call itself.",
        since=(3, 13, 3),
    ),
    *(
        _uvloop("context", f"Test_UV_Context::{test}", _CONTEXT)
        for test in (
            "test_create_connection_protocol",
            "test_create_server_manual_connection_lost",
            "test_create_ssl_server_connection_protocol",
            "test_create_ssl_server_manual_connection_lost",
            "test_datagram_protocol",
            "test_start_tls",
        )
    ),
    _uvloop("sockets", "TestUVSockets::test_socket_close_loop_and_close", _KEPT_OPEN),
    _uvloop("sockets", "TestUVSockets::test_socket_connect_and_close", _KEPT_OPEN, hangs=True),
    _uvloop("sockets", "TestUVSockets::test_socket_recv_and_close", _KEPT_OPEN),
    _uvloop("sockets", "TestUVSockets::test_socket_recv_into_and_close", _KEPT_OPEN),
    _uvloop(
        "tcp",
        "Test_UV_TCP::test_tcp_handle_abort_in_connection_made",
        "`get_extra_info('socket')` of an aborted transport: None on uvloop, the closed socket on asyncio.",
    ),
    _uvloop("tcp", "Test_UV_TCPSSL::test_bpo_39951_discard_trailing_data", _SHUTDOWN),
    _uvloop("tcp", "Test_UV_TCPSSL::test_shutdown_timeout_handler_not_set", _SHUTDOWN, hangs=True),
    _uvloop("tcp", "Test_UV_TCPSSL::test_shutdown_while_pause_reading", _SHUTDOWN),
    _uvloop(
        "tcp",
        "Test_UV_TCPSSL::test_first_data_after_wakeup",
        "Writes through the plain transport until `start_tls` has returned the other; skipped on asyncio, where "
        "`data_received` comes before that, too.",
    ),
    _uvloop(
        "tcp",
        "Test_UV_TCP::test_create_server_buffered_2",
        "Asks for an error of uvloop's own, `unhandled error ... get_buffer`; on ours `connection_lost` receives the "
        "exception that the protocol raised, as on asyncio.",
    ),
    _uvloop(
        "tcp",
        "Test_UV_TCPSSL::test_start_tls_client_buf_proto_1",
        "A protocol with the methods of `BufferedProtocol` but not the class, above TLS; asyncio's sslproto asks for "
        "the class. The test hangs on asyncio.",
        hangs=True,
    ),
    _uvloop("udp", "Test_UV_UDP::test_create_datagram_endpoint_reuse_address_error", _REUSE),
    _uvloop("udp", "Test_UV_UDP::test_create_datagram_endpoint_reuse_address_warning", _REUSE),
    Difference(
        "uvloop",
        _UV.format("udp", "Test_UV_UDP::test_create_datagram_endpoint_wrong_sock"),
        "Asks for the text of an error of asyncio's, which later bugfix releases of Python have changed.",
        by_chance=True,
    ),
    _uvloop(
        "udp",
        "Test_UV_UDP::test_udp_sendto_dns",
        "uvloop refuses a host name in `sendto`; asyncio looks it up.",
    ),
    _uvloop(
        "unix",
        "Test_UV_Unix::test_create_unix_server_path_stream_bittype",
        "Passes `cleanup_socket` to `create_unix_server`, which asyncio has since 3.13.",
        until=(3, 13),
    ),
    _uvloop(
        "unix",
        "Test_UV_Unix::test_epollhup",
        "Looks at the connection once `Server.wait_closed` has returned; asyncio's waits for connections since 3.12.1.",
        until=(3, 12, 1),
    ),
)

# --- uvicorn -----------------------------------------------------------------------------------------------------

_UVICORN = (
    Difference(
        "uvicorn", "tests/test_auto_detection.py::test_loop_auto", "Asks for a class of a module of asyncio."
    ),
    Difference(
        "uvicorn",
        "tests/test_config.py::test_get_loop_factory[asyncio-_UnixSelectorEventLoop]",
        "The name of the case has the name of the loop's class. On ours it is another one, which passes.",
    ),
)

# --- pyzmq -------------------------------------------------------------------------------------------------------

_KEPT_ALIVE = (
    "Looks into `zmq.utils.garbage`, the thread of pyzmq that keeps a buffer alive which libzmq sends without a copy; "
    "our frames hold their buffers themselves."
)

_STEERABLE = (
    "Where pyzmq has no wheel for the interpreter, pip may build it against the system's libzmq. Before 4.3.5 that has "
    "steerable proxies, and the test is run; ours calls itself 4.3.5."
)

_PYZMQ = (
    Difference("pyzmq", "tests/test_cython.py::test_cython", "Compiles against libzmq's C interface."),
    Difference("pyzmq", "tests/test_message.py::TestFrame::test_above_30", _KEPT_ALIVE),
    Difference("pyzmq", "tests/test_message.py::TestFrame::test_lifecycle1", _KEPT_ALIVE),
    Difference("pyzmq", "tests/test_message.py::TestFrame::test_lifecycle2", _KEPT_ALIVE),
    *(
        Difference(
            "pyzmq", f"tests/test_proxy_steerable.py::TestProxySteerable::{test}", _STEERABLE, by_chance=True
        )
        for test in (
            "test_proxy_steerable",
            "test_proxy_steerable_bind_to_random_with_args",
            "test_proxy_steerable_statistics",
        )
    ),
)

# --- ipykernel ---------------------------------------------------------------------------------------------------

_IPYKERNEL = (
    Difference(
        "ipykernel",
        "tests/test_kernelapp.py::test_merge_connection_file",
        "The test closes the context while the heartbeat's thread may still be about to bind; the thread then fails "
        "with ETERM. On a loaded machine either library may lose the race.",
        by_chance=True,
    ),
)

DIFFERENCES: tuple[Difference, ...] = (*_UVLOOP, *_UVICORN, *_PYZMQ, *_IPYKERNEL)
