"""Modules that only the parent loads, the program that makes a pool."""
