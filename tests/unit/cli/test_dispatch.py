"""How the command submits inputs to the pool, including those that are submitted again."""

from __future__ import annotations

import json
import queue

import pytest

import ropewalk
from ropewalk._target import Place
from ropewalk.cli._chunk import Runner
from ropewalk.cli._dispatch import Chunk, Dispatch, Item


@pytest.mark.parametrize("order", [[0, 1, 2], [10, 20, 12], [7], [4, 3, 6], [2, 0, 1, 9, 6]])
def test_each_record_names_its_own_input(order: list[int]) -> None:
    place = Place("operator", None, "abs", "operator:abs", "operator:abs")
    runner = Runner(place, "jsonl", or_repr=False, star=False, keywords=False, retries=0, most_failures=None)
    events: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
    with ropewalk.Pool(1, kind="thread") as pool:
        dispatch = Dispatch(pool, runner, events, window=4, longest=100)
        dispatch.hand_over([Item(number, -100 * number) for number in order])
        chunk = events.get(timeout=60)
        assert chunk is not None
        lines = [json.loads(ended.line) for ended in dispatch.take(chunk)]
    assert [(line["index"], line["result"]) for line in lines] == [(number, 100 * number) for number in order]
