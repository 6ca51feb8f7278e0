"""Typed state."""
