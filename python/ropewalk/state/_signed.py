"""In whose name transactions run, and why, for those that have no place to say it: `Store.by`."""

from __future__ import annotations

import weakref
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ropewalk.state._store import Store
    from ropewalk.state._transaction import Meta


class Signature(NamedTuple):
    """Who runs the transactions of a store, and why."""

    #: A context may live longer than the store.
    store: weakref.ref[Store[Any]]
    who: str | None
    why: str | None
    #: That of the block around, perhaps for another store.
    outer: Signature | None


_newest: ContextVar[Signature | None] = ContextVar("ropewalk_state_signature", default=None)


def signature_for(store: Store[Any]) -> Signature | None:
    """Returns what the innermost block around the caller says for a store."""
    found = _newest.get()
    while found is not None and found.store() is not store:
        found = found.outer
    return found


@contextmanager
def signed(store: Store[Any], who: str | None, why: str | None) -> Generator[None, None, None]:
    """A block whose transactions of a store are signed; what it does not say, that around it says."""
    around = signature_for(store)
    if around is not None:
        who, why = around.who if who is None else who, around.why if why is None else why
    token = _newest.set(Signature(weakref.ref(store), who, why, _newest.get()))
    try:
        yield
    finally:
        _newest.reset(token)


def with_signature(meta: Meta, signature: Signature | None) -> Meta:
    """Returns a transaction's meta with what a signature adds to it."""
    if signature is None:
        return meta
    return meta._replace(
        who=signature.who if meta.who is None else meta.who,
        why=signature.why if meta.why is None else meta.why,
    )
