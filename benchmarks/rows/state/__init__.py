"""The store and its maps beside dicts, persistent maps, pydantic, orjson, a bare log, SQLite and LMDB."""

TABLES = (
    "snapshot",
    "map",
    "draft",
    "transaction",
    "begin",
    "validation",
    "commit",
    "json",
    "threads",
    "parallel",
    "worker",
    "arrays",
)
