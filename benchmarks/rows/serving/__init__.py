"""Tools behind a server, beside servers of Python's, and beside axum and tonic with nothing behind them."""

TABLES = ("echo", "mcp", "gone", "overload", "mixed", "gateway", "stream", "batch", "telemetry", "idle")
