"""`python -m ropewalk`: the same program as the `ropewalk` command."""

import sys

from ropewalk.cli import main

if __name__ == "__main__":
    sys.exit(main())
