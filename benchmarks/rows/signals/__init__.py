"""The bus beside `queue`, a deque, janus, psygnal, blinker and plain loops."""

TABLES = ("threads", "asyncio", "broadcast", "processes", "delivery")
