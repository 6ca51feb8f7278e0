"""Small Ray clusters for tests, on the loopback interface, which report no usage and end with the test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Bytes of each node's object store; Ray wants 75 MB at least.
STORE = 80 << 20
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Nodes that die are noticed within ten seconds. On a busy machine a shorter time would make Ray give up nodes that
    # live, and with the head this very process.
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "10",
}


@contextmanager
def local_cluster(cpus: int) -> Iterator[Any]:
    """A cluster of one node to which this process is connected."""
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update(QUIET)
    import ray

    try:
        ray.init(
            address="local",
            num_cpus=cpus,
            object_store_memory=STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
        yield ray
    finally:
        ray.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def two_nodes() -> Iterator[tuple[Any, list[Any]]]:
    """A cluster of a head without CPUs and two nodes with one each; this process is connected to it."""
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update(QUIET)
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    try:
        nodes = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        cluster.wait_for_nodes()
        yield cluster, nodes
    finally:
        ray.shutdown()
        cluster.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
