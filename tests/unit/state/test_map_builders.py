"""Builders of `PMap`, and threads."""

from __future__ import annotations

import random
import threading

import pytest
from tests.unit.state._keys import fails

from ropewalk._load import state
from ropewalk.state import PMap

# --- builders ---------------------------------------------------------------------------------------------------------


def test_a_builder() -> None:
    base = PMap(a=1, b=2)
    builder = base.mutate()
    builder["c"] = 3
    builder["a"] = 4
    del builder["b"]
    assert (len(builder), builder["a"], builder.get("b"), builder.get("b", 7)) == (2, 4, None, 7)
    assert "c" in builder
    assert "b" not in builder
    with pytest.raises(KeyError):
        del builder["b"]
    with pytest.raises(KeyError):
        builder["b"]
    builder.discard("b")
    builder.update({"d": 5}, e=6)
    builder.discard("d")
    first = builder.finish()
    assert first == {"a": 4, "c": 3, "e": 6}
    assert base == {"a": 1, "b": 2}
    builder["a"] = 7
    assert first["a"] == 4
    assert builder.finish()["a"] == 7
    with pytest.raises(TypeError, match="cannot create"):
        state.MapBuilder()


def test_a_builder_ends_with_its_block() -> None:
    with PMap(a=1).mutate() as builder:
        builder["b"] = 2
    for use in (
        lambda: builder.__setitem__("c", 3),
        lambda: builder.__delitem__("a"),
        lambda: builder.update(c=3),
        lambda: builder.discard("a"),
    ):
        with pytest.raises(RuntimeError, match="block has ended"):
            use()
    assert builder["b"] == 2
    assert builder.finish() == {"a": 1, "b": 2}
    with pytest.raises(ZeroDivisionError), PMap().mutate():
        fails()


def test_maps_of_one_builder_share_nothing_that_changes() -> None:
    builder = PMap().mutate()
    made = []
    for n in range(300):
        builder[n % 100] = n
        if n % 3 == 0:
            del builder[n % 100]
        made.append((builder.finish(), dict(builder.finish())))
    for it, model in made:
        assert it == model


def test_threads_that_share_a_builder_get_an_error_at_most() -> None:
    builder = PMap().mutate()
    barrier = threading.Barrier(4)
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        source = random.Random(seed)
        barrier.wait()
        for _ in range(5000):
            key = source.randrange(300)
            try:
                if source.random() < 0.7:
                    builder[key] = [key]
                elif source.random() < 0.5:
                    builder.discard(key)
                else:
                    assert builder.get(key, [key]) == [key]
            except RuntimeError as error:
                assert "another call uses" in str(error)  # noqa: PT017
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(value == [key] for key, value in builder.finish().items())


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_read_while_others_derive() -> None:
    base = PMap({f"key {n}": n for n in range(2000)})
    newest = [base]
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            it = newest[0]
            if sum(1 for _ in it.items()) != len(it) or it["key 7"] != 7:
                wrong.append(it)

    def derive() -> None:
        it = base
        for n in range(3000):
            it = it.set(f"key {n}", n) if n % 2 else it.set(f"other {n}", n)
            newest[0] = it

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=derive) for _ in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not wrong
    assert base == {f"key {n}": n for n in range(2000)}


def test_threads_may_share_an_iterator() -> None:
    walk = iter(PMap({n: n for n in range(20_000)}))
    found: list[list[int]] = [[], []]
    threads = [threading.Thread(target=lambda into=into: into.extend(walk)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found[0] + found[1]) == list(range(20_000))
