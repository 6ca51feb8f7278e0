"""The pools beside `ProcessPoolExecutor`, `multiprocessing.Pool`, `ThreadPoolExecutor`, loky, joblib, mpire, pebble."""

TABLES = (
    "start",
    "memory",
    "roundtrip",
    "window",
    "map",
    "functions",
    "joblib",
    "array",
    "kernel",
    "kill",
    "cancel",
    "demo",
)
