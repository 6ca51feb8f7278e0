"""The versions of libzmq and pyzmq with which this package is compatible."""

from __future__ import annotations

from ropewalk.zmq import _compiled

#: The version of pyzmq whose API this package has. Programs compare it to choose what to call.
_PYZMQ = (27, 2, 0)
__version__ = ".".join(map(str, _PYZMQ))
__revision__ = ""

zmq_version_info = _compiled.zmq_version_info


def zmq_version() -> str:
    """Return the version of libzmq that this package behaves as; it does not contain libzmq."""
    return ".".join(map(str, zmq_version_info()))


def pyzmq_version() -> str:
    """Return the version of pyzmq whose API this package has; it does not contain pyzmq."""
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
