"""Arguments by name, as asyncio's methods take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.loop.loops import Loop


def test_what_schedules_takes_its_parameters_by_name(loop: Loop) -> None:
    said: list[str] = []
    loop.call_soon(callback=lambda: said.append("soon"))
    loop.call_soon_threadsafe(callback=lambda: said.append("threadsafe"))
    loop.call_later(delay=0.001, callback=lambda: said.append("later"))
    loop.call_at(when=loop.time() + 0.002, callback=lambda: said.append("at"), context=None)
    loop.call_later(0.003, callback=loop.stop)
    loop.run_forever()
    assert said == ["soon", "threadsafe", "later", "at"]


@pytest.mark.parametrize(
    "call",
    [
        lambda loop: loop.call_soon(),
        lambda loop: loop.call_later(1),
        lambda loop: loop.call_later(callback=print),
        lambda loop: loop.call_later(1, delay=2, callback=print),
        lambda loop: loop.call_soon(print, callback=print),
        lambda loop: loop.call_soon(print, contexts=None),
        lambda loop: loop.call_at("soon", print),
    ],
)
def test_wrong_arguments_are_type_errors(loop: Loop, call: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        call(loop)
