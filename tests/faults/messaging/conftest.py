"""What peers, processes and the system do wrong; sides and fixtures are the conformance suite's."""

from __future__ import annotations

from tests.conformance.messaging.conftest import alone, ours, peer, sides, subject

__all__ = ["alone", "ours", "peer", "sides", "subject"]
