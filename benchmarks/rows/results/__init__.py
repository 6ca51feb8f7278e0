"""`Ok` and `Err` beside the packages `result` and `returns`, and exceptions."""

TABLES = ("create", "chain", "failure")
