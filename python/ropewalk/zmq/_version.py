"""Which versions these sockets answer to."""

from __future__ import annotations

from ropewalk.zmq import _compiled

#: The pyzmq whose API this package has. Programs ask for it to choose what to call.
_PYZMQ = (27, 2, 0)
__version__ = ".".join(map(str, _PYZMQ))
__revision__ = ""

zmq_version_info = _compiled.zmq_version_info


def zmq_version() -> str:
    """Return the version of libzmq that this behaves as; there is no libzmq in it."""
    return ".".join(map(str, zmq_version_info()))


def pyzmq_version() -> str:
    """Return the version of pyzmq whose API this is; there is no pyzmq in it."""
    return __version__


def pyzmq_version_info() -> tuple[int, int, int]:
    """Return `pyzmq_version` as numbers."""
    return _PYZMQ


def get_includes() -> list[str]:
    """Refuse: there are no C headers.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("ropewalk.zmq has no C interface to build against; build against pyzmq")


def get_library_dirs() -> list[str]:
    """Refuse: there is no C library.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("ropewalk.zmq has no C library to link with; link with pyzmq's")


__all__ = [
    "__revision__",
    "__version__",
    "get_includes",
    "get_library_dirs",
    "pyzmq_version",
    "pyzmq_version_info",
    "zmq_version",
    "zmq_version_info",
]
