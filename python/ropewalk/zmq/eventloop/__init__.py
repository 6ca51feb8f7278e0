"""Sockets in tornado's event loop: `zmqstream`. Needs tornado."""
