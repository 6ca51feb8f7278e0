"""New seeds in each worker for the random number generators that the zygote has made.

A module of `preload` may make generators when it is imported, and NumPy makes one of its own. Every worker is forked
with a copy of their state, so without new seeds all workers would draw the same numbers. The zygote finds the
generators once. Each worker seeds them from the system's entropy before its initializer runs, so that the initializer
may set other seeds. Python seeds `random` after each fork; here it is seeded with the others instead.
"""

from __future__ import annotations

import _random
import gc
import sys
import warnings
from typing import Any, cast


def standard() -> list[Any]:
    """Returns the generator behind the functions of `random`, if that is imported."""
    module = sys.modules.get("random")
    return [] if module is None else [module._inst]


def find() -> list[Any]:
    """Returns the generators that this process has made so far: those of `random`, NumPy and PyTorch.

    It checks the types of objects and no attributes, because reading an attribute may run code.
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
    """Gives these generators, and PyTorch's default ones, new seeds from the system."""
    numpy = sys.modules.get("numpy.random")
    python: Any = sys.modules.get("random")
    for each in generators:
        try:
            if python is not None and type(each) is python.Random:
                # The same as its `seed()`, but it writes to fewer pages.
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
    """Seeds a bit generator, from which a `Generator` or `RandomState` draws."""
    sequence = numpy.SeedSequence()
    fresh = type(bits)(sequence)
    if hasattr(bits, "seed_seq"):
        try:
            # The seed sequence too, because `Generator.spawn` derives the seeds of children from it.
            bits.__setstate__((fresh.state, sequence))
            return
        except (AttributeError, TypeError, ValueError):  # NumPy before 1.26 accepts the state only.
            pass
    bits.state = fresh.state


def _forget_normal(legacy: Any) -> None:
    """Drops the normal number that a `RandomState` has drawn ahead; its bit generator is seeded separately."""
    state = legacy.get_state(legacy=False)
    state["has_gauss"] = 0
    state["gauss"] = 0.0
    legacy.set_state(state)
