"""The message bus, in one process and between processes."""
