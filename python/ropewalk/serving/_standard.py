"""Standard input and output for a client, which nothing else may read or write."""

from __future__ import annotations

import os
import threading

from ropewalk._errors import ServingError


class Standard:
    """Takes standard input and output away from the program.

    Until they are given back, the program and its workers read the end of a file and write to standard error: a tool
    that prints would otherwise write between the messages.
    """

    def __init__(self) -> None:
        """Takes them.

        Raises:
            ServingError: the process was started without them.
        """
        taken: list[int] = []
        try:
            taken += [os.dup(0), os.dup(1)]
            os.fstat(2)
        except OSError as error:
            for number in taken:
                os.close(number)
            raise ServingError(
                f"--stdio needs standard input, output and error, and one is closed: {error.strerror}. "
                f"{ServingError.remedy}"
            ) from error
        #: Duplicates, which no child inherits.
        self.input, self.output = taken
        #: Taken for good by the first that closes: the number of a closed descriptor may be another's.
        self._closes = threading.Lock()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)

    def close(self) -> None:
        """Gives them back."""
        if not self._closes.acquire(blocking=False):
            return
        for own, number in ((self.input, 0), (self.output, 1)):
            os.dup2(own, number)
            os.close(own)
