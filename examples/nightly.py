"""A nightly job that goes on where it was killed. Run it, kill it, run it again:

python examples/nightly.py            # kill -9 it, and run it again
ropewalk flows show nightly.wal nightly-2026-11-28
"""

import time

import ropewalk
from ropewalk.flows import Flows, flow, on_commit, step


def download(day: str) -> list[str]:
    """Stands for a download that takes a while."""
    print("downloading", day)
    time.sleep(0.1)
    return [f"{day}: line {number}" for number in range(20)]


def clean(line: str) -> int:
    """Runs in a worker, for each line."""
    time.sleep(0.02)
    return len(line)


def publish(day: str, sizes: list[int]) -> int:
    """Its message follows when its result is on the disk, and only then."""
    on_commit(announce, day, sum(sizes))
    return sum(sizes)


def announce(day: str, total: int, *, key: str) -> None:
    """May come twice after a crash; by the key its receiver knows the second time."""
    print(f"announced {day}: {total} characters (key {key[:8]})")


@flow
def nightly(day: str) -> int:
    """Runs again from its first line after a crash; what has finished is not run again."""
    lines = step(download, day)
    sizes = step.map(clean, lines)
    return step(publish, day, sizes, retries=3)


if __name__ == "__main__":
    with ropewalk.Pool() as pool, Flows("nightly.wal", pool=pool) as flows:
        run = flows.start(nightly, "2026-11-28", id="nightly-2026-11-28")
        print(run, "->", run.result())
