"""Names that the program deletes in its main module, and in modules that workers cannot import."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_main_module import BEFORE, _program as run_main


def test_what_the_program_deletes_goes(tmp_path: Path) -> None:
    source = """
        import types
        from unittest import mock
        made = sys.modules["made"] = types.ModuleType("made")
        made.x = made.y = 1
        class Base:
            lim = 1
            def get(self): return "real"
        class Other(Base): lim = 11
        class Child(Base): y = 2
        def local():
            class Local: z = 3
            return Local
        Local = [local()]
        class Colour(enum.Enum): RED = 1; LIST = [0]
        Colour.RED.note = 1
        K = 1
        def name():
            try: return K
            except NameError: return "gone"
        def spelled(): return globals().get("K", "gone")
        def opened():
            try: return open("/dev/null").mode
            except TypeError: return "patched"
        def opened_too(): return opened()
        def get(): return Child().get(), Child.lim, getattr(Child, "y", "gone"), len(Child.__mro__)
        def inner(kind): return getattr(kind, "z", "gone")
        def module(): return sorted(name for name in vars(made) if name in "xy")
        def note():
            value = [0] if turn < 1 else [0, 1]
            return getattr(Colour.RED, "note", "gone"), Colour.LIST.value, Colour(value) is Colour.LIST
        turn = 0
        def show(step):
            for function in (name, spelled, opened, opened_too, get, module, note):
                for _ in range(2):
                    there, here = run(function), function()
                    if there != here:
                        print(step, function.__name__, there, "and not", here)
            if run(inner, Local[0]) != inner(Local[0]): print(step, "inner")
        show("before")
        Colour.RED.note = 2; Colour.LIST.value.append(1); turn = 1; show("members")
        with mock.patch.object(Child, "get", lambda self: "fake"), mock.patch("__main__.open", None, create=True):
            show("patched")
        show("after")
        Child.lim = 5; show("hidden")
        del Child.lim; show("seen")
        Base.lim = 7; show("changed")
        Child.lim = Base.lim; show("the same")
        Base.lim = 8; show("apart")
        Child.__bases__ = (Other,); show("bases")
        del Child.y, Child.lim, K, Local[0].z, made.y, Colour.RED.note; show("deleted")
        K = 1; made.y = 3; Child.y = 3; show("again")
        del K; show("deleted again")
        print("done")
        """
    assert run_main(tmp_path, source) == ["done"]


def test_what_a_worker_has_set_stays_when_the_program_deletes_other_names(tmp_path: Path) -> None:
    source = """
        class Config: mine, other = 1, 2
        count = 0
        def init():
            global count, added
            count, added = 10, 20
            Config.added = 30
        def use():
            return count, added, getattr(Config, "added", "gone"), getattr(Config, "other", "gone"), globals().get("K")
        K = 1
        with ropewalk.Pool(1, kind="process", initializer=init) as pool:
            print(pool.submit(use).result(60))
            del K, Config.other
            print(pool.submit(use).result(60))
            del count
            print(pool.submit(lambda: globals().get("count", "gone")).result(60), pool.submit(lambda: added).result(60))
        """
    assert run_main(tmp_path, source, BEFORE) == [
        "(10, 20, 30, 2, 1)",
        "(10, 20, 30, 'gone', None)",
        "gone 20",
    ]


def test_a_task_that_was_submitted_before_a_name_was_there_runs_without(tmp_path: Path) -> None:
    source = """
        def read():
            try: return later
            except NameError: return "none"
        futures = [pool.submit(read)]
        for step in range(3):
            later = step
            futures.append(pool.submit(read))
            del later
            futures += [pool.submit(read), pool.submit(lambda: read())]
        print([future.result(60) for future in futures])
        """
    assert run_main(tmp_path, source) == ["['none', 0, 'none', 'none', 1, 'none', 'none', 2, 'none', 'none']"]


def test_a_module_that_only_the_program_has_is_imported_in_a_body(tmp_path: Path) -> None:
    source = """
        import types
        made = sys.modules["made"] = types.ModuleType("made")
        theirs = sys.modules["own"] = types.ModuleType("own")
        theirs.unsendable = open("/dev/null")
        class Job:
            def run(self):
                import made
                return made.x
        def read():
            import made
            from made import x
            return made.x, x
        def init():
            worker_s = sys.modules["own"] = types.ModuleType("own")
            worker_s.x = "worker's"
        def read_own():
            import own
            return own.x
        with ropewalk.Pool(1, kind="process", initializer=init) as pool:
            for made.x in range(3):
                print(pool.submit(read).result(60), pool.submit(lambda job: job.run(), Job()).result(60))
            print(pool.submit(read_own).result(60))
        """
    assert run_main(tmp_path, source, BEFORE) == [
        "(0, 0) 0", "(1, 1) 1", "(2, 2) 2", "worker's"
    ]  # fmt: skip
