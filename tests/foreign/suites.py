"""The table of the foreign suites: where each comes from, what it needs, and which of its tests are run.

A release is pinned, and `constraints.txt` pins everything else that pip installs for it. To move to a newer release,
change its version here and run the suite: what it finds new belongs into `differences.py` or is a defect.
"""

from __future__ import annotations

from typing import NamedTuple


class Suite(NamedTuple):
    """One project's own tests."""

    name: str
    version: str
    #: `asyncio` or `uvloop`: whose loop is swapped. `zmq`: pyzmq's backend is.
    swaps: str
    #: What its tests import beyond the project itself, for pip.
    requires: tuple[str, ...]
    #: The files and folders of its source release that are tests, or that tests read.
    takes: tuple[str, ...] = ("tests", "pyproject.toml")
    #: What pytest is given after its options.
    arguments: tuple[str, ...] = ("tests",)
    #: The extras of the project that its tests need.
    extras: str = ""
    #: Whether the tests are modules of the project's own package, and run where pip has installed it.
    inside: bool = False
    #: The tag of its repository, if its source releases hold no tests.
    tag: str = ""
    #: Those of `requires` that refuse a free-threaded interpreter; the tests that need them skip themselves.
    locked: tuple[str, ...] = ()
    #: Loggers that the project's own runner of its tests turns off.
    silent: tuple[str, ...] = ()
    #: The seconds that one test may take, and all of them.
    patience: float = 60.0
    limit: float = 1200.0

    @property
    def reference(self) -> str:
        """What passes the suite, by its authors' word: ours is compared with it."""
        return {"asyncio": "asyncio", "uvloop": "uvloop", "zmq": "libzmq"}[self.swaps]


_PYTEST = ("pytest",)

SUITES = (
    Suite(
        "uvloop",
        "0.23.0",
        "uvloop",
        (*_PYTEST, "aiohttp", "psutil", "pyOpenSSL"),
        # The cases of the class AIO are the same on asyncio's own loop, for uvloop's authors to compare with.
        arguments=("tests", "-s", "-k", "not AIO", "--ignore=tests/test_sourcecode.py"),
        patience=30.0,
    ),
    Suite(
        "aiohttp",
        "3.14.5",
        "asyncio",
        (
            *_PYTEST,
            "blockbuster",
            "freezegun",
            "gunicorn",
            "isal",
            "proxy.py>=2.4.4rc5",
            "pytest-cov",
            "pytest-mock",
            "pytest-timeout",
            "pytest-codspeed",
            "re-assert",
            "setuptools",
            "trustme",
            "zlib-ng",
        ),
        takes=("tests", "pytest.ini", "examples"),
        # Doctests, benchmarks and type checks have nothing to do with a loop.
        arguments=("tests", "-m", "not dev_mode and not autobahn and not internal", "--no-cov"),
        extras="speedups",
        limit=3600.0,
    ),
    Suite(
        "websockets",
        "17.0.1",
        "asyncio",
        (*_PYTEST, "python-socks[asyncio]", "mitmproxy", "werkzeug"),
        # The other folders have tests without a loop: of the protocol, of threads, of trio.
        arguments=("tests/asyncio", "tests/legacy"),
        tag="17.0.1",
        locked=("mitmproxy",),
    ),
    Suite(
        "anyio",
        "4.16.0",
        "asyncio",
        (
            *_PYTEST,
            "blockbuster",
            "hypothesis",
            "psutil",
            "pytest-mock",
            "pytest-timeout",
            "trustme",
            "truststore",
            "trio",
        ),
        arguments=("tests", "-k", "not trio", "-p", "anyio", "-m", "not network"),
    ),
    Suite(
        "uvicorn",
        "0.54.0",
        "asyncio",
        (
            *_PYTEST,
            "a2wsgi",
            "cryptography",
            "httpx2",
            "pytest-mock",
            "trustme",
            "wsproto",
            "zttp",
            "httptools",
            "websockets",
            "watchfiles",
            "python-dotenv",
            "PyYAML",
        ),
        arguments=("tests", "--ignore=tests/benchmarks"),
    ),
    Suite(
        "tornado",
        "6.6.1",
        "asyncio",
        _PYTEST,
        takes=(),
        arguments=("tornado/test",),
        inside=True,
        silent=("tornado.access",),
    ),
    Suite(
        "httpx",
        "0.28.1",
        "asyncio",
        (*_PYTEST, "chardet", "cryptography", "trustme", "uvicorn", "trio", "pytest-trio"),
        arguments=("tests", "-k", "not trio"),
        extras="brotli,cli,http2,socks,zstd",
    ),
    Suite(
        "hypercorn",
        "0.18.0",
        "asyncio",
        (*_PYTEST, "httpx", "hypothesis", "mock", "pytest-asyncio", "pytest-trio", "trio"),
        arguments=("tests", "--ignore=tests/trio"),
    ),
    Suite(
        "pyzmq",
        "27.3.0",
        "zmq",
        (*_PYTEST, "pytest-asyncio", "tornado", "pymongo", "setuptools", "cython"),
        takes=("tests", "pytest.ini"),
        patience=30.0,
    ),
    Suite(
        "jupyter_client",
        "8.10.0",
        "zmq",
        (*_PYTEST, "anyio", "ipykernel", "pytest-jupyter[client]", "pytest-timeout", "msgpack"),
    ),
    Suite(
        "ipykernel",
        "7.4.0",
        "zmq",
        (
            *_PYTEST,
            "flaky",
            "ipyparallel",
            "psutil",
            "pytest-asyncio",
            "pytest-timeout",
            "trio",
            "matplotlib",
        ),
    ),
    Suite(
        "nbclient",
        "0.11.0",
        "zmq",
        (
            *_PYTEST,
            "flaky",
            "ipykernel",
            "ipywidgets",
            "nbconvert",
            "pytest-asyncio",
            "testpath",
            "xmltodict",
        ),
    ),
    Suite(
        "jupyter_server",
        "2.21.1",
        "zmq",
        (
            *_PYTEST,
            "flaky",
            "ipykernel",
            "pytest-console-scripts",
            "pytest-jupyter[server]",
            "pytest-timeout",
        ),
        arguments=("tests/services/kernels", "tests/services/sessions", "tests/services/kernelspecs"),
    ),
    Suite(
        "ipyparallel",
        "9.2.0",
        "zmq",
        (
            *_PYTEST,
            "pytest-asyncio",
            "ipython[test]",
            "testpath",
            # Without these, the tests of arrays, of adapters and of the other serializers skip themselves.
            "cloudpickle",
            "distributed",
            "joblib",
            "matplotlib",
            "numpy",
            "pandas",
        ),
        takes=("pyproject.toml",),
        arguments=("ipyparallel/tests",),
        inside=True,
    ),
    Suite(
        "locust",
        "2.46.3",
        "zmq",
        (*_PYTEST, "cryptography", "pyquery", "retry", "setuptools"),
        takes=("locust/test",),
        arguments=("locust/test",),
        inside=True,
        tag="2.46.3",
    ),
    Suite("zerorpc", "0.6.3", "zmq", (*_PYTEST, "pynose", "setuptools"), takes=("tests",), tag="v0.6.3"),
)

BY_NAME = {suite.name: suite for suite in SUITES}
