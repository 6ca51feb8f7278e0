"""The event loop beside asyncio, uvloop and rloop.

On a free-threaded interpreter `foreign` is the table of interest.
"""

TABLES = ("calls", "timers", "tasks", "foreign", "whole", "echo", "http")
