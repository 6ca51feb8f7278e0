"""What a bus and its subscriptions tell about themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubscriptionStatistics:
    """The counters of a subscription, as they were at one moment."""

    __module__ = "ropewalk"

    #: Messages that wait now.
    waiting: int
    #: The most that ever waited at once.
    peak: int
    #: Messages that were put in.
    accepted: int
    #: Messages that were taken out.
    received: int
    #: Messages that were dropped for want of room; each was told by a `Lagged`, or will be.
    dropped: int
    #: Messages whose publisher got a `BusFull`.
    refused: int


@dataclass(frozen=True)
class BusStatistics:
    """The counters of a bus, as they were at one moment."""

    __module__ = "ropewalk"

    #: Messages published.
    published: int
    #: Messages times those who listened to their topics, before filters.
    delivered: int
    #: Handlers and filters that raised.
    failed: int
    #: Handlers that listen now.
    handlers: int
    #: Subscriptions that listen now.
    subscriptions: int
    #: Messages that wait in those subscriptions.
    waiting: int
    #: Messages that those subscriptions dropped.
    dropped: int
    #: Messages that those subscriptions refused.
    refused: int
