"""The event loop beside asyncio, uvloop, rloop, rsloop and, on Python 3.14, zuvloop.

On a free-threaded interpreter `foreign` is the table of interest.
"""

TABLES = (
    "calls",
    "timers",
    "tasks",
    "foreign",
    "crossing",
    "whole",
    "echo",
    "writes",
    "single",
    "datagrams",
    "pipes",
    "http",
    "connections",
    "messages",
    "files",
    "tls",
)
