"""`ropewalk top`: what a server does, in a terminal."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path

from ropewalk.cli._errors import CommandError
from ropewalk.cli._flags import TopOptions
from ropewalk.cli._status import TOOLS, WORKERS, Document, Source, checked_token, summary, tools, workers
from ropewalk.client._calls import VARIABLE


def run_top(options: TopOptions) -> int:
    """Show a server until the user leaves, or print it once where no terminal is; return the exit status.

    Raises:
        CommandError: the server cannot be read, or Textual is missing.
    """
    source = Source(options.url, _token(options.token_file), _trust(options.tls_ca))
    if options.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _show(source.once())
        return 0
    try:
        from ropewalk.cli._top_app import Top
    except ImportError:
        raise CommandError(
            "ropewalk top draws with Textual, which is not installed",
            "pip install 'ropewalk[top]', or ropewalk top --once",
        ) from None
    # A wrong address is reported before the screen is taken.
    source.once()
    Top(source).run()
    return 0


def _token(path: str | None) -> str | None:
    if path is None:
        # As for a client of `ropewalk.client`.
        return checked_token(os.environ.get(VARIABLE) or None)
    try:
        lines = Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"the file of tokens {path!r} cannot be read: {error}") from None
    if not lines:
        raise CommandError(f"the file of tokens {path!r} has none")
    return checked_token(lines[0])


def _trust(path: str | None) -> ssl.SSLContext | None:
    if path is None:
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"the file of authorities {path!r} cannot be used: {reason}") from None


def _show(document: Document) -> None:
    from rich.console import Console
    from rich.table import Table

    # As wide as it is needed, where a program reads it.
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(summary(document))
    for columns, rows in ((WORKERS, [row for *_, row in workers(document)]), (TOOLS, tools(document))):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, is_number in columns.items():
            table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print()
        console.print(table)
