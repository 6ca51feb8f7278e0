"""Pools, in folders that say which processes load them: `parent`, `zygote`, `worker`, and `wire` for all three."""
