"""The screen of `ropewalk top`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Sparkline, Static

from ropewalk.cli._errors import CommandError
from ropewalk.cli._status import (
    SORTS,
    TOOLS,
    WORKERS,
    Document,
    Source,
    stack_text,
    summary,
    tools,
    workers,
)

#: Seconds of calls that are drawn.
_DRAWN = 120
#: Seconds until a lost server is asked again.
_PAUSE = 1.0
_TABLE = cast("type[DataTable[Any]]", DataTable)
_COLOURS = {"busy": "bold", "starting": "yellow", "standby": "yellow", "leaving": "yellow"}


class Called(Message):
    """A call that is to be made in the screen's own thread."""

    def __init__(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        super().__init__()
        self.call = call
        self.arguments = arguments


class StackScreen(ModalScreen[None]):
    """The stacks of a worker."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,s", "dismiss", "Back")]
    CSS = """
    StackScreen { align: center middle; }
    #stack { width: 90%; height: 90%; border: round $accent; padding: 0 1; background: $surface; }
    """

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Makes the box."""
        box = VerticalScroll(Static(Text(self._text), id="stack-text"), id="stack")
        box.border_title = Text(self._title).markup
        yield box


class Top(App[None]):
    """A server as it lives."""

    TITLE = "ropewalk top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "sort", "Order"),
        Binding("s,enter", "stack", "Stack"),
        Binding("q", "quit", "Quit"),
        # As every program in a terminal, above a stack too; Textual would say which other key does.
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]
    CSS = """
    #summary, #state { height: 1; padding: 0 1; }
    #state.lost { background: $error; color: $text; }
    #rate { height: 3; margin: 0 1; }
    #workers { height: 2fr; } #tools { height: 1fr; }
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._leaving = threading.Event()
        self._sort = 0
        #: The last document, and the calls of each second.
        self.document: Document | None = None
        self._calls: dict[int, int] = {}

    def compose(self) -> ComposeResult:
        """Makes the screen."""
        yield Static(self._source.url, id="state")
        yield Static("", id="summary")
        yield Sparkline([0], id="rate")
        yield DataTable(id="workers", cursor_type="row")
        yield DataTable(id="tools", cursor_type="none", show_cursor=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begins to read."""
        for name, columns in (("#workers", WORKERS), ("#tools", TOOLS)):
            table = self._table(name)
            for column in columns:
                table.add_column(column, key=column)
        self._table("#workers").focus()
        threading.Thread(target=self._read, name="ropewalk-top", daemon=True).start()

    def on_unmount(self) -> None:
        """Reads no longer."""
        self._leaving.set()

    def _table(self, name: str) -> DataTable[Any]:
        return self.query_one(name, _TABLE)

    def _read(self) -> None:
        while not self._leaving.is_set():
            why = "the server has ended it"
            try:
                for document in self._source.events():
                    if self._leaving.is_set():
                        return
                    self._there(self.learn, document)
            except CommandError as error:
                why = str(error)
            self._there(self.lose, why)
            self._leaving.wait(_PAUSE)

    def _there(self, call: Callable[..., object], *arguments: object) -> None:
        # A screen that is gone takes no message.
        self.post_message(Called(call, arguments))

    def on_called(self, message: Called) -> None:
        """Another thread has something to say."""
        message.call(*message.arguments)

    def lose(self, why: str) -> None:
        """The connection is lost."""
        state = self.query_one("#state", Static)
        state.add_class("lost")
        state.update(Text(f"connection lost: {why}. Trying again"))

    def learn(self, document: Document) -> None:
        """A document has come."""
        self.document = document
        if document["whole"]:
            self._calls.clear()
        self._calls.update((row[0], row[1]) for row in document["calls"])
        second = document["second"]
        for old in [at for at in self._calls if at <= second - _DRAWN - 5]:
            del self._calls[old]
        state = self.query_one("#state", Static)
        state.remove_class("lost")
        state.update(Text(f"{self._source.url} · order: {SORTS[self._sort]}"))
        self.query_one("#summary", Static).update(Text(summary(document)))
        self.query_one("#rate", Sparkline).data = [
            float(self._calls.get(at, 0)) for at in range(second - _DRAWN, second)
        ]
        self._draw()

    def _draw(self) -> None:
        if self.document is None:
            return
        rows = workers(self.document, SORTS[self._sort])
        _fill(self._table("#workers"), WORKERS, {f"{pool}\n{number}": row for pool, number, row in rows})
        _fill(self._table("#tools"), TOOLS, {row[0]: row for row in tools(self.document)})

    def action_sort(self) -> None:
        """Orders the workers by the next of `SORTS`."""
        self._sort = (self._sort + 1) % len(SORTS)
        self.query_one("#state", Static).update(Text(f"{self._source.url} · order: {SORTS[self._sort]}"))
        self._draw()

    def on_data_table_row_selected(self) -> None:
        """Enter asks for the stack of a worker."""
        self.action_stack()

    def action_stack(self) -> None:
        """Shows the stacks of the worker under the cursor."""
        table = self._table("#workers")
        if not table.is_valid_row_index(table.cursor_row):
            return
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""
        pool, _, number = key.rpartition("\n")

        def ask() -> None:
            try:
                text = stack_text(self._source.stack(pool, int(number)))
            except CommandError as error:
                text = str(error)
            self._there(self.push_screen, StackScreen(f"Worker {pool}/{number}", text))

        threading.Thread(target=ask, name="ropewalk-top-stack", daemon=True).start()


def _fill(table: DataTable[Any], columns: dict[str, bool], rows: dict[str, tuple[str, ...]]) -> None:
    """Shows rows, in their order; the cursor stays on its row."""
    at = None
    if table.is_valid_row_index(table.cursor_row):
        at = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
    cells = {
        key: [
            Text(text, justify="right" if is_number else "left", style=_COLOURS.get(text, ""))
            for text, is_number in zip(row, columns.values(), strict=True)
        ]
        for key, row in rows.items()
    }
    if [row.value for row in table.rows] == list(rows):
        for key, row in cells.items():
            for column, cell in zip(columns, row, strict=True):
                if table.get_cell(key, column) != cell:
                    table.update_cell(key, column, cell, update_width=True)
        return
    table.clear()
    for key, row in cells.items():
        table.add_row(*row, key=key)
    if at in rows:
        table.move_cursor(row=list(rows).index(at))
