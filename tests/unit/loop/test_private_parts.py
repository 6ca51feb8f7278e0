"""Tools that reach into asyncio's private queue, heap and selector read ours, or learn what to use instead."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
from tests.unit.loop import loops

pytestmark = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="of our loop alone")


def test_queue_and_timers_can_be_read(loop: Any) -> None:
    assert (len(loop._ready), len(loop._scheduled)) == (0, 0)
    assert not loop._ready
    handles = [loop.call_soon(print, number) for number in range(3)]
    timers = [loop.call_later(1000 + number, print) for number in range(2)]
    assert list(loop._ready) == handles
    assert loop._ready[0] is handles[0]
    assert sorted(loop._scheduled, key=lambda timer: timer.when()) == timers
    assert "<Handle print(" in repr(loop._ready)
    for handle in handles + timers:
        handle.cancel()


def test_a_callback_sees_what_runs_after_it(loop: Any) -> None:
    seen: list[list[Any]] = []
    loop.call_soon(lambda: seen.append(list(loop._ready)))
    second = loop.call_soon(lambda: seen.append(list(loop._ready)))
    third = loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == [[second, third], [third]]


@pytest.mark.parametrize("change", ["append", "popleft", "extend", "remove"])
@pytest.mark.parametrize("part", ["_ready", "_scheduled"])
def test_they_cannot_be_changed(loop: Any, part: str, change: str) -> None:
    with pytest.raises(AttributeError, match=r"loop\.call_soon\(\)"):
        getattr(getattr(loop, part), change)


def test_there_is_no_selector(loop: Any) -> None:
    with pytest.raises(AttributeError, match=r"no select\(\).*loop\.add_reader\(\)"):
        loop._selector.select(0)


def test_nest_asyncio_is_refused_before_it_patches(loop: Any) -> None:
    # What `nest_asyncio.apply` does first.
    nest = {"__name__": "nest_asyncio"}
    exec("def patch(loop): return hasattr(loop, '_nest_patched')", nest)
    with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
        nest["patch"](loop)  # type: ignore[operator]
    # It is no attribute for anybody else.
    assert not hasattr(loop, "_nest_patched")
    assert "_nest_patched" not in dict(inspect.getmembers(loop))


@pytest.mark.parametrize("name", ["nest_asyncio", "nest_asyncio2"])
def test_nest_asyncio_itself(loop: Any, name: str) -> None:
    nest = pytest.importorskip(name)
    run = type(loop).run_forever
    with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
        nest._patch_loop(loop)
    assert type(loop).run_forever is run


@pytest.mark.parametrize("name", ["nest_asyncio", "nest_asyncio2"])
def test_loops_run_after_nest_asyncio_has_patched_the_class_of_asyncios(name: str) -> None:
    pytest.importorskip(name)
    program = f"""
import asyncio, {name}
{name}.apply()
import ropewalk
async def main():
    await asyncio.sleep(0.001)
    return "ran"
print(ropewalk.run(main()))
loop = ropewalk.new_event_loop()
print(loop.run_until_complete(main()))
async def nested():
    loop.run_forever()
try:
    loop.run_until_complete(nested())
except RuntimeError as error:
    print(error)
loop.close()
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert said.stdout.splitlines() == ["ran", "ran", "This event loop is already running"], said.stderr
