"""A transaction with savepoints, and others that commit meanwhile, against a plain model."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.unit.state import plainly
from tests.unit.state.plainly import Entry, Op, plain, repeated

from ropewalk._errors import Conflict
from ropewalk.state import Store

hypothesis: Any = pytest.importorskip("hypothesis")
st: Any = pytest.importorskip("hypothesis.strategies")
stateful: Any = pytest.importorskip("hypothesis.stateful")
precondition, rule = stateful.precondition, stateful.rule

operations = st.builds(
    lambda path, name, *args: (path, name, args),
    st.sampled_from(plainly.PATHS),
    st.sampled_from(plainly.NAMES),
    st.sampled_from(plainly.KEYS),
    st.sampled_from(plainly.VALUES),
    st.sampled_from(plainly.KEYS),
    st.integers(-2, 3),
    st.integers(-2, 2),
)


class Machine(stateful.RuleBasedStateMachine):
    """One transaction with savepoints, and others that commit meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        state, self.model = plainly.start()
        self.store = Store(state)
        self.block: contextlib.AbstractContextManager[Any] | None = None
        self.tx: Any = None
        self.log: list[Entry] = []
        self.points: list[Any] = []
        self.others = False

    @precondition(lambda self: self.tx is None)
    @rule()
    def begin(self) -> None:
        self.block = self.store.transaction()
        self.tx = self.block.__enter__()
        self.log, self.points, self.others = [], [], False

    @precondition(lambda self: self.tx is not None)
    @rule(op=operations)
    def work(self, op: Op) -> None:
        self.log.append(("op", op, plainly.run(self.tx.draft, op)))

    @precondition(lambda self: self.tx is not None)
    @rule()
    def save(self) -> None:
        point = self.tx.savepoint()
        point.__enter__()
        self.points.append(point)
        self.log.append(("save", None, None))

    @precondition(lambda self: self.points)
    @rule()
    def release(self) -> None:
        self.points.pop().__exit__(None, None, None)
        self.log.append(("release", None, None))

    @precondition(lambda self: self.points)
    @rule()
    def roll_back(self) -> None:
        error = KeyError("back")
        assert not self.points.pop().__exit__(KeyError, error, None)
        self.log.append(("rollback", None, None))

    @rule(op=operations)
    def other(self, op: Op) -> None:
        """Another transaction commits."""
        before = self.store.version
        result = self.store.run(lambda root: plainly.run(root, op))
        assert plainly.run(self.model, op) == result
        self.others |= self.store.version != before

    @precondition(lambda self: self.tx is not None)
    @rule()
    def commit(self) -> None:
        assert self.block is not None
        while self.points:
            self.release()
        self.tx = None
        try:
            self.block.__exit__(None, None, None)
        except Conflict:
            assert self.others, "nothing else was committed"
            return
        self.model = repeated(self.model, self.log)

    @precondition(lambda self: self.tx is not None)
    @rule()
    def give_up(self) -> None:
        assert self.block is not None
        self.tx = None
        self.points = []
        with contextlib.suppress(KeyError):
            self.block.__exit__(KeyError, KeyError("given up"), None)

    @stateful.invariant()
    def agrees(self) -> None:
        assert plain(self.store.snapshot()) == self.model

    def teardown(self) -> None:
        if self.tx is not None:
            self.give_up()


Machine.TestCase.settings = hypothesis.settings(max_examples=100, stateful_step_count=40, deadline=None)
TestMachine = Machine.TestCase
