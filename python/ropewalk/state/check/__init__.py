"""Contracts against code: what the source of a task touches, and whether its contract says so.

`examine` compares one task with its contract, and `infer` writes the contract that the source needs. `ropewalk check`
prints what they find. Programs that only run tasks do not load this folder.
"""

from __future__ import annotations

from ropewalk.state.check._examined import Examined, Finding, examine, infer

__all__ = ["Examined", "Finding", "examine", "infer"]
