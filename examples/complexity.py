"""Cyclomatic complexity of every function in the running Python's own standard library, on every core.

    python examples/complexity.py            the ten most complex functions
    python examples/complexity.py --compare  the same, timed against a plain loop in one process

`measure` takes one file, so it serves `ropewalk map` as well:

    ropewalk map examples/complexity.py:measure --glob '/usr/lib/python3*/**/*.py'

Source: T. J. McCabe, "A Complexity Measure", IEEE Transactions on Software Engineering 2 (1976): one, and one more for
each decision.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import sysconfig
import time
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DECISIONS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def stdlib_files() -> list[str]:
    """Every Python file of the standard library, the largest first: the long ones must not come last."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [path for path in root.rglob("*.py") if "site-packages" not in path.parts and path.is_file()]
    files.sort(key=lambda path: (-path.stat().st_size, str(path)))
    return [str(path) for path in files]


def measure(path: str) -> dict[str, Any]:
    """Lines, tokens and functions of one file, and its three most complex functions.

    A file that does not parse, such as those that test the parser, is reported with its error, not raised.
    """
    data = Path(path).read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Old code has invalid escapes; that is not what is asked here.
            tree = ast.parse(data, path)
        tokens = sum(1 for _ in tokenize.tokenize(io.BytesIO(data).readline))
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        return {"path": path, "error": f"{type(error).__name__}: {error}"}
    functions = sorted(_functions(tree, ""), key=lambda found: (-found["complexity"], found["line"]))
    return {
        "path": path,
        "lines": data.count(b"\n"),
        "tokens": tokens,
        "functions": len(functions),
        "complexity": sum(found["complexity"] for found in functions),
        "worst": functions[:3],
    }


def _functions(node: ast.AST, prefix: str) -> Iterator[dict[str, Any]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            name = f"{prefix}{child.name}"
            yield {"name": name, "line": child.lineno, "complexity": complexity(child)}
            yield from _functions(child, f"{name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def complexity(function: ast.AST) -> int:
    """McCabe's number of one function; functions inside it count for themselves."""
    total = 1
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, _DECISIONS):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        waiting.extend(ast.iter_child_nodes(node))
    return total


def _show(results: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    root = sysconfig.get_path("stdlib")
    good = [result for result in results if "error" not in result]
    worst = [(found, result["path"]) for result in good for found in result["worst"]]
    worst.sort(key=lambda pair: (-pair[0]["complexity"], pair[1]))
    table = Table(title="The ten most complex functions of the standard library")
    table.add_column("complexity", justify="right")
    table.add_column("function")
    table.add_column("where")
    for found, path in worst[:10]:
        table.add_row(
            str(found["complexity"]), found["name"], f"{os.path.relpath(path, root)}:{found['line']}"
        )
    console = Console()
    console.print(table)
    console.print(
        f"{len(good)} modules, {sum(r['lines'] for r in good):,} lines, "
        f"{sum(r['functions'] for r in good):,} functions; "
        f"{len(results) - len(good)} files do not parse, on purpose: they are test data."
    )


def main() -> None:
    """Measures the standard library and prints what it found."""
    import ropewalk

    parser = argparse.ArgumentParser(
        description="Complexity of the standard library's functions, on every core."
    )
    parser.add_argument("--workers", type=int, help="worker processes; by default one for each usable core")
    parser.add_argument(
        "--compare", action="store_true", help="time it against a plain loop in this process, too"
    )
    parser.add_argument("--limit", type=int, help="only so many files, the largest ones")
    options = parser.parse_args()
    files = stdlib_files()[: options.limit]
    print(f"{len(files)} files of {sysconfig.get_path('stdlib')}")

    loop = None
    if options.compare:
        start = time.perf_counter()
        expected = [measure(path) for path in files]
        loop = time.perf_counter() - start
        print(f"a plain loop, one process   {loop:6.2f} s")

    # What is timed: making the pool, its workers, all the work, and shutting it down.
    start = time.perf_counter()
    with ropewalk.Pool(options.workers, kind="process") as pool:
        results = list(pool.map(measure, files))
        statistics = pool.statistics()
    wall = time.perf_counter() - start
    print(
        f"ropewalk, {statistics.workers} worker processes {wall:6.2f} s, start and end of the pool included"
    )
    if loop is None:
        print(f"speed-up over one worker, estimated from busy time: {statistics.busy_seconds / wall:.2f}")
    else:
        same = "the same" if results == expected else "NOT THE SAME"
        print(f"speed-up over the plain loop: {loop / wall:.2f}; the results are {same}")
    _show(results)


if __name__ == "__main__":
    main()
