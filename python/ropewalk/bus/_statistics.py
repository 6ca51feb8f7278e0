"""The counters of a bus and of its subscriptions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubscriptionStatistics:
    """A snapshot of the counters of a subscription."""

    #: Messages that wait now.
    waiting: int
    #: The most that ever waited at once.
    peak: int
    #: Messages that the subscription accepted.
    accepted: int
    #: Messages that receivers took.
    received: int
    #: Messages that were dropped because there was no room; a `Lagged` has reported each, or will.
    dropped: int
    #: Messages whose publisher got a `BusFull`.
    refused: int


@dataclass(frozen=True)
class BusStatistics:
    """A snapshot of the counters of a bus."""

    #: Messages published.
    published: int
    #: Deliveries: for each message the number of listeners to its topic, before filters.
    delivered: int
    #: Handlers and filters that raised.
    failed: int
    #: Handlers that are registered now.
    handlers: int
    #: Subscriptions that are open now.
    subscriptions: int
    #: Messages that wait in those subscriptions.
    waiting: int
    #: Messages that those subscriptions dropped, and events of pools that handlers missed.
    dropped: int
    #: Messages that those subscriptions refused.
    refused: int
