"""Results as values: `Ok`, `Err`, and what makes them from calls and sorts many of them."""

from ropewalk._results import Err, Ok, Result, as_result, collect, from_call, partition

__all__ = ["Err", "Ok", "Result", "as_result", "collect", "from_call", "partition"]
