"""The exceptions that end the command early."""

from __future__ import annotations

from ropewalk._target import TargetError

SUCCESS = 0
SOME_FAILED = 1
CANNOT_GO_ON = 2
INTERRUPTED = 130
TERMINATED = 143
PIPE_CLOSED = 141


class CommandError(TargetError):
    """The command cannot start or cannot go on; exit status 2.

    `problem` and `hint` are printed on separate lines.
    """


class OutputError(CommandError):
    """Results cannot be written: the disk is full, the file-size limit is reached, or the device has failed."""


class OutputClosed(Exception):
    """The reader of standard output has closed it, as `head` does after its last line."""
