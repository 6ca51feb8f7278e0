"""Modules that the parent, the zygote and the workers load: they encode calls, results and surroundings."""
