"""The tables of the benchmarks: a folder for each suite, and in it a file for each table.

A file holds the contests of its table (functions that run in a fresh interpreter and return numbers), and the table:
on each line the name, the contest and what it returns, the goal, and the peers with the goals against them.
"""

SUITES = ("pools", "loop", "signals", "results", "journal", "state", "messaging", "foundation", "serving")
