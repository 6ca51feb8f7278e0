"""Table: the validation of one changed leaf beside that of everything."""

from __future__ import annotations

from itertools import count

from harness.clock import seconds_of
from harness.measure import Size
from harness.states import ITEMS, NEEDS, OURS, nested, shuffled
from harness.table import Contest, Line, Row, times_better

PYDANTIC = "pydantic, everything"
MSGSPEC = "msgspec, everything"


def changed(peer: str, calls: int) -> dict[str, float]:
    """Seconds of transactions that change one leaf each, which pydantic checks."""
    from pydantic import BaseModel, ConfigDict, ValidationError

    from harness.models import Account
    from ropewalk.state import PMap, Store, paths, task

    assert peer == OURS

    class Bank(BaseModel):
        model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)
        accounts: PMap[str, Account]

    Bank.model_rebuild(_types_namespace={"PMap": PMap, "Account": Account})
    paths_of = paths(Bank)

    @task(writes=[paths_of.accounts])
    def put(b: object, name: str, balance: int) -> None:
        b.accounts[name].balance = balance  # type: ignore[attr-defined]

    accounts = {name: Account(**one) for name, one in nested(ITEMS)["accounts"].items()}
    store = Store(Bank(accounts=PMap(accounts)))
    names = shuffled(ITEMS)[:calls]
    balances = count(1000)

    def play() -> None:
        # An equal value would be no change, and not checked again.
        for name, balance in zip(names, balances, strict=False):
            store.run(put, name, balance)

    took = seconds_of(play) / len(names)
    before = store.snapshot().accounts[names[0]].balance
    assert before >= 1000
    try:
        store.run(put, names[0], -1)
    except ValidationError:
        assert store.snapshot().accounts[names[0]].balance == before
    else:
        raise AssertionError("a negative balance passed")
    return {"each": took}


def everything(peer: str, calls: int) -> dict[str, float]:
    """Seconds of the validation of the whole state, from dicts to models."""
    source = {"accounts": nested(ITEMS)["accounts"]}
    if peer == PYDANTIC:
        from harness.models import Plain

        validate = Plain.model_validate
    else:
        import msgspec

        account = msgspec.defstruct("Account", [("owner", str), ("balance", int)], frozen=True)
        plain = msgspec.defstruct("Plain", [("accounts", dict[str, account])], frozen=True)  # type: ignore[valid-type]

        def validate(source: object) -> object:
            return msgspec.convert(source, plain)

    def play() -> None:
        for _ in range(calls):
            validate(source)

    return {"each": seconds_of(play) / calls}


ONE = Contest(changed, "1 leaf", {OURS: (*NEEDS, "pydantic")}, calls=Size(2000, 5))
ALL = Contest(everything, players={PYDANTIC: ("pydantic",), MSGSPEC: ("msgspec",)}, calls=Size(3, 1))

ROW = Row(
    "validation",
    "a changed leaf is checked",
    "The state is a pydantic model with 5,000 models in a `PMap`, whose two fields have rules. Ours is a whole "
    "transaction that changes a field of one of them, which pydantic checks before the commit. The peers check all of "
    "the state, from nested dicts; msgspec without the rules.",
    (
        Line(
            "1 leaf of 5,000",
            "µs",
            ONE,
            "each",
            None,
            {ALL.by(PYDANTIC): times_better(500), ALL.by(MSGSPEC): None},
            scale=1e6,
        ),
    ),
)
