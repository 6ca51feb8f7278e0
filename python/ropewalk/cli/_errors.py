"""What ends the command before or instead of its normal end."""

from __future__ import annotations

SUCCESS = 0
SOME_FAILED = 1
CANNOT_GO_ON = 2
INTERRUPTED = 130
TERMINATED = 143
PIPE_CLOSED = 141


class CommandError(Exception):
    """The command cannot start or cannot go on; exit status 2.

    `problem` says what failed and `hint` what to try. They are two sentences because they are shown apart.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class OutputError(CommandError):
    """Results cannot be written any more: a full disk, a file-size limit, a broken device."""


class OutputClosed(Exception):
    """Whoever read the standard output has gone, as `head` does when it has seen enough."""
