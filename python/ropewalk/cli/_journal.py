"""`--journal`: the lines of inputs that an earlier run has finished, and those of this one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ropewalk import JournalError
from ropewalk._keys import key_of, open_calls, parts
from ropewalk.cli._dispatch import Ended
from ropewalk.cli._errors import CommandError
from ropewalk.cli._flags import MapOptions


class Finished:
    """The results of a command's finished inputs, as lines in a journal.

    An input is known by its value, the function, and the flags that say what its line looks like.
    """

    def __init__(self, path: str, function: str, options: MapOptions) -> None:
        """Opens the journal.

        Raises:
            CommandError: it cannot be opened.
        """
        self._function = key_of(("map", function, options.format, options.repr, options.star, options.kwargs))
        try:
            self._log = open_calls(os.path.realpath(path))
        except JournalError as error:
            raise CommandError(f"--journal {path!r}: {error}") from None

    def look(self, value: Any) -> tuple[bytes, bytes | None]:
        """Returns the key of an input, and its line if an earlier run has finished it.

        Raises:
            CommandError: the journal cannot be read, or the input is nested too deeply for a key.
        """
        try:
            return self._log.begin(self._function, value, parts)
        except JournalError as error:
            raise CommandError(f"--journal: {error}") from None
        except ValueError as error:
            raise CommandError(
                f"--journal: an input has no key: {error}", "a run without --journal"
            ) from None

    def keep(self, ended: Iterable[Ended]) -> None:
        """Puts the lines of the inputs that have not failed on the disk.

        Raises:
            CommandError: the journal cannot be written.
        """
        done = [one for one in ended if one.failure is None]
        if not done:
            return
        try:
            for one in done:
                self._log.finish(one.item.key, one.line)
            self._log.sync()
        except JournalError as error:
            raise CommandError(f"--journal: {error}") from None

    def close(self) -> None:
        """Closes the journal; what it could not write has been said before."""
        try:
            self._log.close()
        except JournalError as error:
            raise CommandError(f"--journal: {error}") from None
