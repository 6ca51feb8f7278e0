"""Adapters of other libraries' interfaces to Ropewalk; each is loaded only when it is imported by name."""
