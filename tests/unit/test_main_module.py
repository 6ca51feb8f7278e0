"""The program's main module in its workers: one namespace for as long as the worker lives."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BEFORE = """
import contextvars, dataclasses, enum, functools, logging, sys, threading
import ropewalk
"""
POOL = """
pool = ropewalk.Pool(1, kind="process")
def run(function, *args): return pool.submit(function, *args).result(60)
"""


def _program(tmp_path: Path, source: str, before: str = BEFORE + POOL) -> list[str]:
    """What a script without any guard prints."""
    file = tmp_path / "program.py"
    file.write_text(before + textwrap.dedent(source))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_task_reads_what_the_initializer_has_set(tmp_path: Path) -> None:
    source = """
        G = None
        def init(x):
            global G
            G = x
        def read():
            return G
        def ask():
            return read(), (lambda: G)()
        with ropewalk.Pool(2, kind="process", threads=2, initializer=init, initargs=("set",)) as pool:
            print({pool.submit(read).result(60) for _ in range(20)})
            print(set(pool.map(lambda _: G, range(20), chunksize=1)))
            print(pool.submit(ask).result(60))
            G = "redefined"
            print({pool.submit(read).result(60) for _ in range(20)})
        """
    assert _program(tmp_path, source, BEFORE) == ["{'set'}", "{'set'}", "('set', 'set')", "{'redefined'}"]


def test_an_initializer_that_has_no_name_in_the_program(tmp_path: Path) -> None:
    source = """
        def init(x):
            globals()["later"] = x
        with ropewalk.Pool(1, kind="process", initializer=init, initargs=(3,)) as pool:
            print(pool.submit(lambda: later).result(60))
        """
    assert _program(tmp_path, source, BEFORE) == ["3"]


def test_what_a_task_assigns_stays_until_the_program_assigns(tmp_path: Path) -> None:
    source = """
        hits, other = 0, 1
        def hit():
            global hits
            hits += 1
            return hits
        def ten():
            global hits
            hits += 10
            return hits, other
        print(run(hit), run(hit), run(ten), run(hit))
        other = 2
        print(run(ten), run(hit))
        hits = 100
        print(run(hit), run(ten))
        """
    assert _program(tmp_path, source) == ["1 2 (12, 1) 13", "(23, 2) 24", "101 (111, 2)"]


def test_each_task_sees_the_values_of_its_submission(tmp_path: Path) -> None:
    source = """
        def rated():
            return rate
        def twice():
            return rated() + rate
        futures = []
        for rate in [0, 1, 2, 1, 0, 7]:
            futures += [pool.submit(rated), pool.submit(twice)]
        print([future.result(60) for future in futures])
        """
    assert _program(tmp_path, source) == ["[0, 0, 1, 2, 2, 4, 1, 2, 0, 0, 7, 14]"]


def test_identity_holds_between_functions(tmp_path: Path) -> None:
    source = """
        MISSING = object()
        CACHE = {}
        INSIDE = []
        OUTSIDE = {"inside": INSIDE}
        AGAIN = CACHE
        def missing(value=MISSING): return value is MISSING
        def put(key, cache=CACHE):
            cache[key] = 1
            return cache is CACHE is AGAIN, len(CACHE)
        def same(): return OUTSIDE["inside"] is INSIDE
        class Node: pass
        LEFT, RIGHT = Node(), Node()
        LEFT.other, RIGHT.other = RIGHT, LEFT
        def circle(): return LEFT.other is RIGHT and RIGHT.other is LEFT and LEFT is not RIGHT
        class Partner: pass
        Node.partner, Partner.partner = Partner, Node
        def partners(): return Node.partner is Partner and Partner.partner is Node and type(LEFT) is Node
        print(run(missing), run(lambda: missing()), run(lambda: missing(MISSING)))
        print(run(put, 1), run(put, 2), run(lambda: put(3)), run(lambda: len(CACHE)))
        print(run(same), run(circle), run(partners), run(same))
        """
    assert _program(tmp_path, source) == [
        "True True True",
        "(True, 1) (True, 2) (True, 3) 3",
        "True True True True",
    ]


CLASSES = """
        @dataclasses.dataclass
        class Point:
            x: int
            made = 0
            def __post_init__(self):
                pass
            def count(self):
                Point.made += 1
                return Point.made
        class Colour(enum.Enum):
            RED = 1
        class Plain(Point):
            __slots__ = ("y",)
        def count(point): return isinstance(point, Point), type(point) is Point, point.count()
        def make(x): return Point(x)
        """


def test_a_class_is_one_class_for_all_tasks(tmp_path: Path) -> None:
    source = (
        CLASSES
        + """
        print(run(count, Point(1)), run(count, Point(2)), run(lambda: count(Point(3))))
        point = run(make, 4)
        print(type(point) is Point, point == Point(4), Point.made)
        print(type(run(lambda: [lambda: 0, make(5)])[1]) is Point, Point.made)
        print(run(lambda colour: colour is Colour.RED, Colour.RED), run(lambda: Colour.RED) is Colour.RED)
        print(run(lambda: isinstance(Plain(1), Point)), type(run(lambda: Plain(1))) is Plain)
        print([p.x for p in pool.map(make, range(3))], sum(p.x for p in pool.map(lambda p: p, [Point(1), Point(2)])))
        """
    )
    assert _program(tmp_path, source) == [
        "(True, True, 1) (True, True, 2) (True, True, 3)",
        "True True 0",
        "True 0",
        "True True",
        "True True",
        "[0, 1, 2] 3",
    ]


def test_a_class_that_the_program_changes_or_defines_anew_arrives(tmp_path: Path) -> None:
    source = (
        CLASSES
        + """
        print(run(count, Point(1)), run(count, Point(1)))
        Point.made = 50
        print(run(count, Point(1)), run(make, 1).made)
        old = Point(1)
        class Point:
            def __init__(self, x): self.x = -x
            def count(self): return "new"
        print(run(count, Point(1)), run(make, 3).x, type(run(make, 3)) is Point)
        print(run(lambda point: point.x, old), run(make, 3).x)
        rate = 1
        class Rated:
            def rate(self): return rate
        def rated(): return Rated().rate()
        print(run(rated), run(Rated().rate))
        rate = 2
        print(run(rated), run(Rated().rate))
        Rated.rate = lambda self: "changed"
        print(run(rated), run(lambda one: one.rate(), Rated()))
        """
    )
    assert _program(tmp_path, source) == [
        "(True, True, 1) (True, True, 2)",
        "(True, True, 51) 50",
        "(True, True, 'new') -3 True",
        "1 -3",
        "1 1",
        "2 2",
        "changed changed",
    ]


def test_caches_and_generic_functions(tmp_path: Path) -> None:
    source = """
        @functools.lru_cache(maxsize=None)
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        @functools.singledispatch
        def kind(value): return "any"
        @kind.register
        def _(value: int): return "int"
        class Own: pass
        kind.register(Own)(lambda value: "own")
        class Shows:
            @functools.singledispatchmethod
            def show(self, value): return "any"
            @show.register
            def _(self, value: int): return "int"
            @functools.cached_property
            def seven(self): return 7
        print(run(fib, 80), run(lambda: fib.cache_info().currsize), run(lambda: fib.cache_parameters()))
        print(run(kind, 1), run(kind, "x"), run(kind, Own()), run(lambda: kind(2)))
        print(run(Shows().show, 1), run(lambda: (Shows().show("x"), Shows().seven)))
        """
    assert _program(tmp_path, source) == [
        "23416728348467685 81 {'maxsize': None, 'typed': False}",
        "int any own int",
        "int ('any', 7)",
    ]


def test_globals_that_a_worker_has_its_own_of(tmp_path: Path) -> None:
    source = """
        lock, again, condition = threading.Lock(), threading.RLock(), threading.Condition()
        event, places, barrier = threading.Event(), threading.Semaphore(2), threading.Barrier(1)
        local = threading.local()
        plain, default = contextvars.ContextVar("plain"), contextvars.ContextVar("default", default=7)
        log = logging.getLogger("a.b")
        class Guarded:
            def __init__(self): self.lock = threading.Lock()
        guarded = Guarded()
        lock.acquire(); event.set()
        def use():
            with lock, again, condition, places, guarded.lock:
                condition.notify_all()
            barrier.wait()
            local.x = 1
            plain.set("value")
            return event.is_set(), plain.get(), default.get(), log.name
        def use_again():
            return local.x, plain.get(), lock.locked()
        print(run(use), run(use_again))
        """
    assert _program(tmp_path, source) == ["(True, 'value', 7, 'a.b') (1, 'value', False)"]


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    source = """
        log = open(__file__)
        def read(): return log.read()
        def outer(): return read()
        stack = sys._getframe()
        for function in (outer, lambda: stack):
            try:
                run(function)
            except ropewalk.EncodeError as error:
                print(error)
        """
    first, second = _program(tmp_path, source)
    assert "an open file" in first
    assert "the global log of the program's __main__" in first
    assert "the global stack of the program's __main__" in second


def test_a_cell_s_source_stands_in_tracebacks(tmp_path: Path) -> None:
    source = """
        import linecache, traceback
        lines = ["def helper():\\n", "    raise ValueError('in a cell')\\n"]
        linecache.cache["<cell 1>"] = (60, None, lines, "<cell 1>")
        exec(compile("".join(lines), "<cell 1>", "exec"), globals())
        try:
            run(lambda: helper())
        except ValueError as error:
            print("raise ValueError('in a cell')" in str(error.__cause__))
        """
    assert _program(tmp_path, source) == ["True"]


def test_frozen_exceptions_come_back_as_themselves(tmp_path: Path) -> None:
    source = """
        @dataclasses.dataclass(frozen=True)
        class Refused(Exception):
            code: int
            why: str = "so"
        def refuse(code): raise Refused(code)
        try:
            run(refuse, 4)
        except Refused as error:
            print(error.code, error.why, type(error.__cause__).__name__)
        results = list(pool.map(refuse, [5, 6, 7, 8], chunksize=4, results=True))
        print([result.error.code for result in results])
        """
    assert _program(tmp_path, source) == ["4 so RemoteTraceback", "[5, 6, 7, 8]"]


def test_the_value_of_an_enumeration_changed_in_place(tmp_path: Path) -> None:
    source = """
        import enum
        class Held:
            def __init__(self): self.n = 0
            def __getstate__(self): return {"n": self.n}
        class Kind(enum.Enum):
            ROWS = [1]
            NAMES = {"x": 1}
            HELD = Held()
            FIXED = 3
        def look(): return Kind.ROWS.value, Kind.NAMES.value, Kind.HELD.value.n, Kind.FIXED.value
        def found():
            return [Kind(list(Kind.ROWS.value)) is Kind.ROWS, Kind(dict(Kind.NAMES.value)) is Kind.NAMES,
                    Kind(Kind.HELD.value) is Kind.HELD, Kind(3) is Kind.FIXED]
        with ropewalk.Pool(1, kind="process") as one:
            for _ in range(2):
                print(one.submit(look).result(60), one.submit(lambda member: member.value, Kind.ROWS).result(60))
                print(all(one.submit(found).result(60)))
                Kind.ROWS.value.append(2)
                Kind.NAMES.value["x"] += 1
                Kind.HELD.value.n += 1
        """
    assert _program(tmp_path, source) == [
        "([1], {'x': 1}, 0, 3) [1]",
        "True",
        "([1, 2], {'x': 2}, 1, 3) [1, 2]",
        "True",
    ]


@pytest.mark.parametrize("threads", [1, 4])
def test_a_function_that_many_threads_submit(tmp_path: Path, threads: int) -> None:
    source = f"""
        from concurrent.futures import ThreadPoolExecutor
        rate = 3
        def scaled(x): return x * rate
        with ropewalk.Pool(2, kind="process", threads={threads}) as pool, ThreadPoolExecutor(8) as submitters:
            def batch(start):
                futures = [pool.submit(scaled, start + n) for n in range(200)]
                futures += [pool.submit(lambda x, n=n: x + n, start) for n in range(20)]
                return sum(future.result(60) for future in futures)
            print(sum(submitters.map(batch, range(8))))
        """
    expected = sum(sum((s + n) * 3 for n in range(200)) + sum(s + n for n in range(20)) for s in range(8))
    assert _program(tmp_path, source, BEFORE) == [str(expected)]


def test_a_main_module_in_a_worker_s_own_pool(tmp_path: Path) -> None:
    source = """
        rate = 3
        def scaled(x): return x * rate
        def nested():
            with ropewalk.Pool(1, kind="process") as inner:
                return inner.submit(scaled, 4).result(60)
        print(run(nested))
        """
    assert _program(tmp_path, source) == ["12"]


def test_a_change_in_place_arrives_through_whatever_holds_the_object(tmp_path: Path) -> None:
    source = """
        options = {"rate": 0}
        class App:
            def __init__(self, options): self.options = options
        app = App(options)
        holder = [app]
        left, right = [options], {}
        left.append(right); right["left"] = left
        def scale(x, table=options): return table["rate"] * x
        def make():
            cell = {"rate": 0}
            return (lambda: cell["rate"]), cell
        get, cell = make()
        class Job:
            def run(self): return get()
        def held():
            same = app.options is options is scale.__defaults__[0] is left[0] and holder[0] is app
            circle = left[1] is right and right["left"] is left
            return app.options["rate"], holder[0].options["rate"], right["left"][0]["rate"], same, circle
        for options["rate"] in (1, 2):
            cell["rate"] = options["rate"]
            print(run(held), run(scale, 1), run(lambda: scale(1)), run(lambda: app.options["rate"]))
            print(run(get), run(lambda: get()), run(lambda: Job().run()), run(lambda job: job.run(), Job()))
            print(list(pool.map(lambda _: holder[0].options["rate"], range(2))))
        """
    assert _program(tmp_path, source) == [
        "(1, 1, 1, True, True) 1 1 1",
        "1 1 1 1",
        "[1, 1]",
        "(2, 2, 2, True, True) 2 2 2",
        "2 2 2 2",
        "[2, 2]",
    ]


def test_what_a_task_changes_stays_while_the_program_changes_another_name(tmp_path: Path) -> None:
    source = """
        counts, limits = {"n": 0}, {"most": 1}
        both = [limits]
        def count():
            counts["n"] += 1
            return counts["n"], both[0]["most"]
        print(run(count), run(count))
        limits["most"] = 2
        print(run(count))
        """
    assert _program(tmp_path, source) == ["(1, 1) (2, 1)", "(3, 2)"]


def test_a_change_in_place_behind_a_class_arrives(tmp_path: Path) -> None:
    source = """
        table, cell = {"rate": 0}, {"rate": 0}
        def make(): return lambda self: cell["rate"]
        class Config:
            options = {"rate": 0}
            by_cell = make()
            def by_default(self, table=table): return table["rate"]
            @classmethod
            def rate(cls): return cls.options["rate"]
        class Child(Config): pass
        @dataclasses.dataclass
        class Job:
            x: int
            scale = [0]
            def run(self): return self.x * self.scale[0]
        def helper(options=Config.options): return options["rate"]
        class Calls:
            def run(self): return helper()
        def rate(): return Config.options["rate"]
        def work(job): return job.run()
        for looks in (False, True):
            if looks:  # The interpreter has given the classes versions.
                Config.options, Child.options, Job.scale, Calls.run
            for n in (1, 2):
                for each in (Config.options, table, cell):
                    each["rate"] = n
                Job.scale[0] = n
                print(run(rate), run(Config.rate), run(lambda: Child.rate()), end=" ")
                print(run(lambda: Child().by_default()), run(lambda c: c.by_default(), Child()), end=" ")
                print(run(lambda c: c.by_cell(), Config()), run(work, Job(1)), *pool.map(work, [Job(1)]), end=" ")
                print(run(work, Calls()))
        """
    assert _program(tmp_path, source) == [" ".join(n * 9) for n in ("1", "2", "1", "2")]


def test_a_class_with_nothing_that_changes_unseen_is_known_by_its_version(tmp_path: Path) -> None:
    source = """
        import abc, typing
        from ropewalk import _core
        from ropewalk.pool.wire import _watch
        @dataclasses.dataclass
        class Point:
            x: int
            items: list = dataclasses.field(default_factory=list)
        class Colour(enum.Enum):
            RED = 1
            def show(self): return self.name
        class Pair(typing.NamedTuple):
            a: int = 1
        class Base(abc.ABC):
            __slots__ = ("x",)
            @abc.abstractmethod
            def run(self): ...
            @property
            def twice(self): return 2
            @functools.cached_property
            def thrice(self): return 3
        class Child(Base):
            def run(self): return super().run()
        class Mutable:
            values = []
        def is_known(kind):
            watch = _watch.Watch(lambda function, name: None)
            watch.visit(kind)
            if not watch.complete:
                return False
            checks = _core.Checks(watch.functions, watch.classes)
            before = checks.hold()
            kind.added = 1
            return before and not checks.hold()
        print([is_known(kind) for kind in (Point, Colour, Pair, Base, Child, Mutable)])
        """
    assert _program(tmp_path, source) == ["[True, True, True, True, True, False]"]


def test_modules_that_no_worker_can_import(tmp_path: Path) -> None:
    source = f"""
        import importlib.util, types
        settings = types.ModuleType("settings")
        settings.rate = 0
        file = {str(tmp_path / "apart" / "plug.py")!r}
        spec = importlib.util.spec_from_file_location("plug", file)
        plug = sys.modules["plug"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plug)
        class Holds:
            module = plug
        def rate(): return settings.rate, plug.x, plug.twice(), getattr(plug, "other").x
        def same(): return sys.modules["plug"] is plug is Holds.module, plug.twice.__globals__ is vars(plug)
        for n in (1, 2):
            settings.rate = plug.x = plug.other.x = n
            print(run(rate), run(lambda: rate()), run(plug.twice), run(same))
            print(run(lambda one: one.twice(), plug), run(lambda one: one.module.x, Holds()))
        """
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "plug.py").write_text(
        "import types\nx = 0\nother = types.ModuleType('other')\ndef twice(): return 2 * x\n"
    )
    assert _program(tmp_path, source) == [
        "(1, 1, 2, 1) (1, 1, 2, 1) 2 (True, True)",
        "2 1",
        "(2, 2, 4, 2) (2, 2, 4, 2) 4 (True, True)",
        "4 2",
    ]


def test_the_program_s_first_value_replaces_what_a_task_assigned_before(tmp_path: Path) -> None:
    source = """
        dynamic = seen = "program's"
        def learn():
            global model
            model = "worker's"
        def init():
            global connection
            connection = "initializer's"
            globals()["dynamic"] = "initializer's"
            setattr(sys.modules["__main__"], "seen", "initializer's")
        def use(): return model, connection
        def use_dynamic(): return dynamic, seen
        with ropewalk.Pool(1, kind="process", initializer=init) as pool:
            print(pool.submit(learn).result(60), pool.submit(lambda: (model, connection)).result(60))
            print(pool.submit(use_dynamic).result(60))
            model = connection = "program's"
            print(pool.submit(use).result(60))
            pool.submit(learn).result(60)
            print(pool.submit(use).result(60))
            model, dynamic = "program's second", "program's second"
            print(pool.submit(use).result(60), pool.submit(use_dynamic).result(60))
        """
    assert _program(tmp_path, source, BEFORE) == [
        """None ("worker's", "initializer's")""",
        """("initializer's", "initializer's")""",
        """("program's", "program's")""",
        """("worker's", "program's")""",
        """("program's second", "program's") ("program's second", "initializer's")""",
    ]


def test_tracebacks_name_the_file_and_show_the_line(tmp_path: Path) -> None:
    source = """
        import traceback
        def fail():
            raise ValueError("it failed")  # the line
        made = {}
        exec(compile("def of_text(): return 1 / 0", "a text", "exec"), made)
        for function in fail, lambda: [1][2], made["of_text"]:
            try:
                run(function)
            except Exception:
                print(traceback.format_exc().replace("\\n", "|"))
        """
    failed, anonymous, of_text = _program(tmp_path, source)
    assert f'File "{tmp_path / "program.py"}", line' in failed.partition("direct cause")[0]
    assert 'in fail|    raise ValueError("it failed")  # the line|' in failed.partition("direct cause")[0]
    assert f'File "{tmp_path / "program.py"}", line' in anonymous.partition("direct cause")[0]
    assert 'File "a text", line 1, in of_text' in of_text
