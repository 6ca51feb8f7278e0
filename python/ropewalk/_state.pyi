"""The extension module of state: persistent maps and vectors, drafts of them, and transactions."""
