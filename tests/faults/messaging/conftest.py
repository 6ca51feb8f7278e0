"""Fixtures of the fault tests of messaging; the sides are the conformance suite's."""

from __future__ import annotations

from tests.conformance.messaging.conftest import alone, ours, peer, sides, subject

__all__ = ["alone", "ours", "peer", "sides", "subject"]
