"""An asyncio event loop whose queue, timers, readiness and transports are compiled.

Three ways to use it:

    ropewalk.run(main())                                            # in place of asyncio.run
    asyncio.Runner(loop_factory=ropewalk.new_event_loop)            # where there is a factory
    ropewalk.install()                                              # where asyncio makes the loop
"""

from __future__ import annotations

from ropewalk.loop._datagrams import DatagramTransport
from ropewalk.loop._loop import Loop
from ropewalk.loop._pipes import ReadPipeTransport, WritePipeTransport
from ropewalk.loop._policy import EventLoopPolicy, install, new_event_loop, run
from ropewalk.loop._stream import StreamTransport

__all__ = [
    "DatagramTransport",
    "EventLoopPolicy",
    "Loop",
    "ReadPipeTransport",
    "StreamTransport",
    "WritePipeTransport",
    "install",
    "new_event_loop",
    "run",
]
