"""`python -m windlass`: the same program as the `windlass` command."""

import sys

from windlass.cli import main

if __name__ == "__main__":
    sys.exit(main())
