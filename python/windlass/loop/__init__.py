"""The event loop: asyncio's interface, faster.

Three ways to use it:

    windlass.run(main())                                            # in place of asyncio.run
    asyncio.Runner(loop_factory=windlass.new_event_loop)            # where there is a factory
    windlass.install()                                              # for whatever asks asyncio for a loop
"""

from __future__ import annotations

from windlass.loop._loop import Loop
from windlass.loop._policy import EventLoopPolicy, install, new_event_loop, run
from windlass.loop._stream import StreamTransport

__all__ = ["EventLoopPolicy", "Loop", "StreamTransport", "install", "new_event_loop", "run"]
