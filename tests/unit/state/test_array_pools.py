"""Arrays in states whose tasks run on pools: which memory they are in there."""
# The dimensions of arrays are no names of types.
# What happens in a block of a transaction is what is tested.

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import (  # noqa: E402
    Model,
    add_model,
    mapping_of,
    model,
    scale,
    sneaky,
    where,
    zoo,
)

import ropewalk  # noqa: E402
from ropewalk._errors import (  # noqa: E402
    ContractViolation,
)
from ropewalk.state import (  # noqa: E402
    PMap,
    Store,
)

#: So many rows that their bytes are lent.
ROWS = 64


def test_a_worker_maps_the_same_memory_and_cannot_write_to_it() -> None:
    with ropewalk.Pool(1, kind="process") as pool, Store(zoo(ROWS), pool=pool) as store:
        pid, there, became_writable = store.submit(where).result(60)
        assert there == mapping_of(store.snapshot().model.weights)
        assert not became_writable
        # What a worker has written is in its own memory, and comes back in place.
        made_there, total = store.submit(scale, 3, 5.0).result(60)
        assert (made_there, total) == (pid, 5 * 256)
        weights = store.snapshot().model.weights
        assert weights[2:5, 0].tolist() == [1, 5, 1]
        assert (store.at(0).model.weights == 1).all()
        with pytest.raises(ValueError, match="WRITEABLE"):
            weights.flags.writeable = True
        device, inode, _ = mapping_of(weights)
        assert (device, inode) not in {mapping_of(store.at(0).model.weights)[:2]}
        # What has changed since the checkpoint is the same memory too: that which the first worker has made.
        assert store.submit(where).result(60)[1] == mapping_of(weights)


@pytest.mark.parametrize("kind", ["process", "thread", "stdlib"])
def test_tasks_change_arrays_on_every_pool(kind: str) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    made: Any = (
        ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        if kind == "stdlib"
        else ropewalk.Pool(1, kind=kind)  # type: ignore[arg-type]
    )
    with made as pool, Store(zoo(ROWS), pool=pool) as store:
        results = [store.submit(scale, row, 2.0) for row in range(6)]
        assert [result.result(60)[1] for result in results] == [512.0] * 6
        store.submit(add_model, "new", 80).result(60)
        state = store.snapshot()
        assert state.model.weights[:7, 0].tolist() == [2] * 6 + [1]
        assert (state.models["new"].weights == 7).all()
        assert state.models["new"].weights.shape == (80, 256)
        assert not state.models["new"].weights.flags.writeable
        with pytest.raises(ContractViolation):
            store.submit(sneaky).result(60)
        assert store.version == 7


def test_a_worker_that_dies_leaves_its_arrays(tmp_path: Path) -> None:
    with Store(zoo(ROWS), journal=tmp_path / "a.wal") as store:
        with ropewalk.Pool(1, kind="process") as pool:
            store._pool = pool
            store.submit(scale, 3, 5.0).result(60)
        gc.collect()
        assert store.snapshot().model.weights[2:5, 0].tolist() == [1, 5, 1]
        store.run(scale, 4, 3.0)
    with Store(zoo(ROWS), journal=tmp_path / "a.wal") as store:
        assert store.snapshot().model.weights[2:5, 0].tolist() == [1, 5, 3]


def test_many_arrays_go_to_a_worker_at_once() -> None:
    big = {f"m{number}": model(ROWS, number) for number in range(150)}
    with (
        ropewalk.Pool(1, kind="process") as pool,
        Store(replace(zoo(), models=PMap(big)), pool=pool) as store,
    ):
        store.submit(add_model, "new", 2).result(60)
        store.submit(add_model, "new", 3).result(60)
        assert len(store.snapshot().models) == 151
        assert isinstance(store.snapshot().models["new"], Model)
