"""Other libraries' interfaces over Ropewalk's public names; each is loaded when it is imported by name."""
