"""What `make demo` runs: the standard library's complexity on every core, timed against a plain loop."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    script = Path(__file__).with_name("complexity.py")
    sys.argv = [str(script), "--compare", *sys.argv[1:]]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
