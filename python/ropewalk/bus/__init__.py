"""The event bus, in one process and in several."""
