"""Typed state: frozen objects in one store, changed by transactions.

@dataclass(frozen=True, slots=True)
class Bank:
    accounts: PMap[str, Account]
    journal: AppendOnly[Transfer]

P = paths(Bank)

@task(writes=[P.accounts, P.journal])
def transfer(b: Draft[Bank], src: str, dst: str, n: int) -> None:
    b.accounts[src].balance -= n
    b.accounts[dst].balance += n
    b.journal.append(Transfer(src, dst, n))
"""

from __future__ import annotations

from ropewalk._errors import (
    BadJson,
    Conflict,
    ContractViolation,
    HistoryGone,
    InvariantBroken,
    NoSuchPath,
    NotFrozen,
    NotJson,
    StateError,
    StoreClosed,
    TransactionEnded,
    WrongType,
)
from ropewalk._load import state as _native
from ropewalk.state._array_draft import writable
from ropewalk.state._contract import Contract, describe
from ropewalk.state._dtypes import (
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ropewalk.state._invariants import invariant
from ropewalk.state._json import dumps, loads
from ropewalk.state._kinds import current, leaf
from ropewalk.state._merge import DELETE
from ropewalk.state._patches import Entry
from ropewalk.state._paths import (
    EACH,
    Key,
    Path as Path,
    Step,
    covers,
    meets,
    path_at,
    path_from,
    paths,
    pointer,
    root_of,
    shape_at,
    steps_of,
    value_at,
)
from ropewalk.state._policy import policy_shape
from ropewalk.state._remote import Submitted
from ropewalk.state._replay import MISSING
from ropewalk.state._rule import Rule, compile_rule
from ropewalk.state._shape import Kind, Shape, shape_of
from ropewalk.state._slots import Slots, conflicts, slots
from ropewalk.state._store import Store, Version
from ropewalk.state._task import Draft, Job, Task, task
from ropewalk.state._transaction import Meta, Transaction
from ropewalk.state._watch import Changed, Changes
from ropewalk.state._zones import AppendOnly, ArrayShape, Const, Counter, Shm, Transient, Zone

# `Path` is not in the list: `from ropewalk.state import *` must not hide that of pathlib.
PMap = _native.PMap
PVector = _native.PVector

__all__ = [
    "DELETE",
    "EACH",
    "MISSING",
    "AppendOnly",
    "ArrayShape",
    "BadJson",
    "Changed",
    "Changes",
    "Conflict",
    "Const",
    "Contract",
    "ContractViolation",
    "Counter",
    "Draft",
    "Entry",
    "HistoryGone",
    "InvariantBroken",
    "Job",
    "Key",
    "Kind",
    "Meta",
    "NoSuchPath",
    "NotFrozen",
    "NotJson",
    "PMap",
    "PVector",
    "Rule",
    "Shape",
    "Shm",
    "Slots",
    "StateError",
    "Step",
    "Store",
    "StoreClosed",
    "Submitted",
    "Task",
    "Transaction",
    "TransactionEnded",
    "Transient",
    "Version",
    "WrongType",
    "Zone",
    "bool_",
    "compile_rule",
    "complex64",
    "complex128",
    "conflicts",
    "covers",
    "current",
    "describe",
    "dumps",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "invariant",
    "leaf",
    "loads",
    "meets",
    "path_at",
    "path_from",
    "paths",
    "pointer",
    "policy_shape",
    "root_of",
    "shape_at",
    "shape_of",
    "slots",
    "steps_of",
    "task",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "value_at",
    "writable",
]
