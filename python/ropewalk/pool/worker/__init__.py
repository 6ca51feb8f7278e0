"""Modules that workers run, and their zygote before the fork."""
