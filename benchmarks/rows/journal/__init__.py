"""The journal and what stands on it, beside a bare log with `fdatasync`, SQLite with a write-ahead log, and LMDB."""

TABLES = ("append", "resume", "map", "flows")
