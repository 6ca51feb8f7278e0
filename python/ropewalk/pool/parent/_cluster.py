"""This process's connection to a Ray cluster: an existing one, or a local one that ends with its last pool."""
# Ray has no complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.util
import os
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from ropewalk._errors import ClusterUnreachable, ExtraMissing

#: Seconds within which the head of a cluster must accept a connection.
_PATIENCE = 10.0
#: Set while a local cluster is started: it reports no usage, and listens on the loopback interface alone.
_LOCAL = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

#: Guards the two below. Reentrant, because a signal handler may make a pool while this thread makes one.
_LOCK = threading.RLock()
#: Pools that use the connection.
_users = 0
#: Whether we have made the connection, and end it with its last user.
_is_ours = False
#: Ends the thread that has made the connection, if that thread has nothing else to do.
_end_starter: Callable[[], None] | None = None


def check_installed() -> None:
    """Raises if Ray is not installed.

    Raises:
        ExtraMissing: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise ExtraMissing(
            "kind=\"ray\" needs Ray, which is not installed: pip install 'ropewalk[ray]'. "
            + ExtraMissing.remedy
        )


#: Options of Ray's actors that the pool sets itself.
_OF_THE_POOL = (
    "max_restarts",
    "max_task_retries",
    "max_concurrency",
    "max_pending_calls",
    "lifetime",
    "name",
)


def check_remote(threads: int, address: object, options: object) -> None:
    """Checks the settings of a pool whose workers are actors of a Ray cluster.

    Raises:
        TypeError, ValueError: a setting is invalid.
    """
    if threads != 1:
        raise ValueError(
            f'threads must be 1 with kind="ray", not {threads}: an actor runs one task at a time. For tasks that wait '
            "take more workers, and ray_options={'num_cpus': 0.1}"
        )
    if address is not None and not isinstance(address, str):
        raise TypeError(f'address must be a text, "HOST:PORT", "auto" or "local", not {address!r}')
    if options is None:
        return
    if not isinstance(options, Mapping):
        raise TypeError(f"ray_options must be a mapping of the options of an actor, not {options!r}")
    for name in cast("Mapping[object, object]", options):
        if name in _OF_THE_POOL:
            raise ValueError(f"ray_options cannot have {name!r}, which the pool sets itself")


class Cluster:
    """A use of the connection by one pool; `release` it once."""

    def __init__(self, address: str | None, log: bool) -> None:
        """Connects this process, unless it is connected.

        Args:
            address: ``"HOST:PORT"`` of the cluster's head, ``"auto"`` for the cluster of this machine, ``"local"`` for
                a new one on this machine. `None` takes the connection that there is, the cluster that ``RAY_ADDRESS``
                names, or a new local one, in this order.
            log: print what tasks print.

        Raises:
            ClusterUnreachable: there is no such cluster, or it could not be started.
        """
        global _users, _is_ours, _end_starter
        ray = _imported()
        with _LOCK:
            if ray.is_initialized():
                _check_same(ray, address)
            else:
                _end_starter = _connect_for_good(lambda: _connect(ray, address, log))
                _is_ours = True
            _users += 1
            #: Whether the cluster belongs to this process's pools alone.
            self.is_local = _is_ours and (address or os.environ.get("RAY_ADDRESS") or "local") == "local"

    def release(self) -> None:
        """Ends the connection, and a local cluster with it, if this was its last user and the program has none."""
        global _users, _is_ours, _end_starter
        with _LOCK:
            _users -= 1
            if _users == 0 and _is_ours:
                _is_ours = False
                end, _end_starter = _end_starter, None
                try:
                    _imported().shutdown()
                finally:
                    if end is not None:
                        end()

    def cores(self) -> int:
        """Returns the number of the cluster's CPUs."""
        resources: Mapping[str, float] = _imported().cluster_resources()
        return max(1, int(resources.get("CPU", 1)))


def _imported() -> Any:
    check_installed()
    import ray

    return ray


def _check_same(ray: Any, address: str | None) -> None:
    if address in (None, "auto"):
        return
    here = ray.get_runtime_context().gcs_address
    if address == "local" and _is_ours:
        return
    if address != here:
        raise ClusterUnreachable(
            f"this process is connected to the Ray cluster {here}, so a pool cannot have address={address!r}: a "
            "process has one connection. Leave address out, or call ray.shutdown() first."
        )


def _connect_for_good(connect: Callable[[], None]) -> Callable[[], None] | None:
    """Connects in a thread that lasts as long as the connection; returns what ends that thread, if it is another one.

    The kernel kills the processes of a local cluster when the thread that has started them ends (Ray asks for that with
    ``PR_SET_PDEATHSIG``), though the process lives on, and other pools use the cluster.
    """
    if threading.current_thread() is threading.main_thread():
        connect()
        return None
    connected, over = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            connect()
        except BaseException as error:
            failed.append(error)
        finally:
            connected.set()
        if not failed:
            over.wait()

    thread = threading.Thread(target=run, name="ropewalk-ray", daemon=True)
    thread.start()
    connected.wait()
    if failed:
        raise failed[0]

    def end() -> None:
        over.set()
        thread.join()

    return end


def _connect(ray: Any, address: str | None, log: bool) -> None:
    wanted = address or os.environ.get("RAY_ADDRESS") or "local"
    given: dict[str, Any] = {"address": wanted, "log_to_driver": log, "logging_level": "error"}
    try:
        if wanted == "local":
            # Actors of ours take no CPU of a cluster that is ours alone: the number of workers is its limit.
            with _on_loopback():
                ray.init(include_dashboard=False, **given)
            return
        _check_reachable(wanted)
        ray.init(**given)
    except ClusterUnreachable:
        raise
    except Exception as error:
        what = "start a local Ray cluster" if wanted == "local" else f"connect to the Ray cluster {wanted!r}"
        raise ClusterUnreachable(
            f"could not {what}: {type(error).__name__}: {error} {ClusterUnreachable.remedy}"
        ) from error


def _check_reachable(address: str) -> None:
    """Raises at once for an address that accepts no connections; Ray itself would try for a minute."""
    host, colon, port = address.rpartition(":")
    if "://" in address:
        raise ClusterUnreachable(
            f"address={address!r}: Ray Client is not supported. Run the program on a node of the cluster, with the "
            'address of the cluster\'s head ("HOST:6379"), or "auto".'
        )
    if address == "auto":
        return
    if not colon or not port.isdigit():
        raise ClusterUnreachable(f'address={address!r} is not "HOST:PORT", "auto" or "local". {_REMEDY}')
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ClusterUnreachable(
            f"no Ray cluster answers at {address} within {_PATIENCE:.0f} s: {error}. {_REMEDY}"
        ) from error


_REMEDY = ClusterUnreachable.remedy


@contextmanager
def _on_loopback() -> Generator[None]:
    """Makes Ray start a cluster that only this machine reaches, and that reports no usage."""
    from ray._private import ray_constants

    before = {name: os.environ.get(name) for name in _LOCAL}
    joins = ray_constants.ENABLE_RAY_CLUSTER
    os.environ.update({name: value for name, value in _LOCAL.items() if before[name] is None})
    # Read from the environment when Ray was imported. Else it would listen on the address of this machine.
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = joins
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
