"""The inside of a fresh interpreter that plays one round of one contest.

``measure.play`` starts it as ``python -c "from harness import child; child.main()" CONTEST ARGUMENTS ANSWER``. It is
run by ``-c`` and not as a script, because `multiprocessing`'s spawn and forkserver import the main script
again in every worker: a cost that belongs to a benchmark and not to the peer. For the same reason the
functions that workers run live in `workloads`, which imports next to nothing.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path


def main() -> None:
    """Play the contest named on the command line and write its figures, or its failure, as JSON."""
    contest, arguments, answer = sys.argv[1:4]
    module, _, function = contest.partition(":")
    try:
        figures = getattr(importlib.import_module(module), function)(**json.loads(arguments))
        said = {"figures": figures}
    except BaseException as error:  # the parent reports it; this process has no other reader
        traceback.print_exc()
        said = {"failure": f"{type(error).__name__}: {error}"}
    Path(answer).write_text(json.dumps(said), encoding="utf-8")
