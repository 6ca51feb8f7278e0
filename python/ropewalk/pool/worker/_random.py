"""New seeds, in each worker, for the generators of random numbers that were there before it was forked.

A module of `preload` may make generators when it is imported, and NumPy makes one of its own. Every worker is forked
with a copy of their state, and without new seeds all workers would draw the same numbers. The zygote finds them once;
each worker seeds them from the system's entropy before its initializer runs, so that an initializer may seed them on
purpose. `random` itself, which Python seeds wherever a process forks, is done with the rest.
"""

from __future__ import annotations

import _random
import gc
import sys
import warnings
from typing import Any, cast


def standard() -> list[Any]:
    """The generator behind the functions of `random`, if anybody has imported that."""
    module = sys.modules.get("random")
    return [] if module is None else [module._inst]


def find() -> list[Any]:
    """The generators that this process has made so far: those of `random`, NumPy and PyTorch.

    Types are looked at, and nothing of the objects themselves: some run code at the first look.
    """
    bases: list[type] = []
    standard = sys.modules.get("random")
    if standard is not None:
        bases.append(standard.Random)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        bases += [numpy.BitGenerator, numpy.RandomState]
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(getattr(torch, "Generator", None), type):
        bases.append(torch.Generator)
    if not bases:
        return []
    known: dict[type[Any], bool] = {}
    found: list[Any] = []
    for each in gc.get_objects():
        kind = cast("type[object]", type(each))
        is_one = known.get(kind)
        if is_one is None:
            is_one = known[kind] = any(base in kind.__mro__ for base in bases)
        if is_one:
            found.append(each)
    return found


def reseed(generators: list[Any]) -> None:
    """Gives each of these generators, and PyTorch's default ones, a state that no other process has."""
    numpy = sys.modules.get("numpy.random")
    python: Any = sys.modules.get("random")
    for each in generators:
        try:
            if python is not None and type(each) is python.Random:
                # What its `seed` does, in fewer pages.
                _random.Random.seed(each)
                each.gauss_next = None
            elif numpy is not None and isinstance(each, numpy.BitGenerator):
                _reseed_bits(numpy, each)
            elif numpy is not None and isinstance(each, numpy.RandomState):
                _forget_normal(each)
            else:
                each.seed()
        except Exception as error:
            warnings.warn(
                f"{type(each).__qualname__}, made by a module of preload, could not be given a new seed and draws the "
                f"same numbers in every worker: {type(error).__name__}: {error}. Make it in an initializer.",
                RuntimeWarning,
                stacklevel=2,
            )
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "seed"):
        torch.seed()


def _reseed_bits(numpy: Any, bits: Any) -> None:
    """`Generator` and `RandomState` draw from one of these."""
    sequence = numpy.SeedSequence()
    fresh = type(bits)(sequence)
    if hasattr(bits, "seed_seq"):
        try:
            # The sequence as well: `Generator.spawn` makes the seeds of children from it.
            bits.__setstate__((fresh.state, sequence))
            return
        except (AttributeError, TypeError, ValueError):  # NumPy before 1.26 takes the state alone.
            pass
    bits.state = fresh.state


def _forget_normal(legacy: Any) -> None:
    """Drops the normal number that a `RandomState` has drawn ahead; its bits are seeded by themselves."""
    state = legacy.get_state(legacy=False)
    state["has_gauss"] = 0
    state["gauss"] = 0.0
    legacy.set_state(state)
