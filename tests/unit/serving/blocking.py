"""An `AsyncClient` for tests that are written for a `Client`: one suite is for both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from ropewalk.client import AsyncClient


class Blocking:
    """An `AsyncClient` with the methods of a `Client`."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._client = AsyncClient(*args, **settings)
        self._runner = asyncio.Runner()

    def _run(self, step: Any) -> Any:
        async def run() -> Any:
            return await step

        return self._runner.run(run())

    def call(self, *args: Any, **named: Any) -> Any:
        return self._run(self._client.call(*args, **named))

    @contextlib.contextmanager
    def stream(self, *args: Any, **named: Any) -> Iterator[Iterator[Any]]:
        with self._read(self._client.stream(*args, **named)) as items:
            yield items

    @contextlib.contextmanager
    def _read(self, items: Any) -> Iterator[Iterator[Any]]:
        def read() -> Iterator[Any]:
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    yield self._run(anext(items))

        try:
            yield read()
        finally:
            self._run(items.aclose())

    @contextlib.contextmanager
    def session(self, *args: Any, **named: Any) -> Iterator[BlockingSession]:
        made = self._run(self._client.session(*args, **named))
        with self._left(made):
            yield BlockingSession(made, self)

    @contextlib.contextmanager
    def _left(self, made: Any) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._run(made.__aexit__(type(error), error, None))
            raise
        self._run(made.__aexit__(None, None, None))

    def tools(self) -> Any:
        return self._run(self._client.tools())

    def tool(self, *args: Any, **named: Any) -> Any:
        made = self._run(self._client.tool(*args, **named))
        return lambda *args, **named: self._run(made(*args, **named))

    def close(self) -> None:
        self._run(self._client.aclose())
        self._runner.close()


class BlockingSession:
    """An `AsyncSession` with the methods of a `Session`."""

    def __init__(self, session: Any, client: Blocking) -> None:
        self._session, self._client = session, client
        self.name = session.name

    def call(self, *args: Any, **named: Any) -> Any:
        return self._client._run(self._session.call(*args, **named))

    def stream(self, *args: Any, **named: Any) -> Any:
        return self._client._read(self._session.stream(*args, **named))

    def close(self) -> None:
        self._client._run(self._session.aclose())

    def __repr__(self) -> str:
        return repr(self._session)
