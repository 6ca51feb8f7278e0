"""The obligations of every native function and type to the interpreter."""

from __future__ import annotations

import re
from pathlib import Path

from tests.law._tree import text, with_suffix
from tests.law.test_crates import knows_python

SOURCES = [
    source
    for source in with_suffix(".rs", under="crates")
    if source.parts[2] == "src" and knows_python(f"ropewalk-{source.parts[1]}")
]
#: The routine that the unwinder calls, not the interpreter.
NO_ENTRIES = {Path("crates/capi/src/forced_unwind.rs")}
#: A function with a body, after its attributes; not a type, nor a declaration in a block of foreign functions.
DEFINITION = re.compile(
    r'((?:^\s*#\[.*\]\n)*)^\s*(?:pub(?:\(\w+\))? )?(?:unsafe )?extern "C" fn (\$?\w+)', re.MULTILINE
)


def test_every_function_that_the_interpreter_calls_is_an_entry() -> None:
    found = [
        (str(source), name, attributes)
        for source in SOURCES
        if source not in NO_ENTRIES
        for attributes, name in DEFINITION.findall(text(source))
    ]
    assert len(found) > 100, "the law does not see the functions any more"
    assert not [(source, name) for source, name, attributes in found if "#[entry]" not in attributes]


def test_no_function_hides_under_another_calling_convention() -> None:
    other = re.compile(r'extern "(?!C")|extern fn')
    assert not [str(source) for source in SOURCES if other.search(text(source))]


def test_every_module_asks_for_the_unwinding_routine() -> None:
    # Those of the plain C API are made by `Module::init`, which asks; those of pyo3 ask for the main interpreter, too.
    code = {source: text(source) for source in SOURCES}
    asks = "forced_unwind::check()"
    kit = code[Path("crates/capi/src/module.rs")]
    for function in ("init", "check_main_interpreter"):
        assert asks in re.findall(rf"^( *)(pub fn {function}\(.*?)^\1}}", kit, re.MULTILINE | re.DOTALL)[0][1]
    shared_object = code[Path("crates/python/src/lib.rs")]
    filled = re.findall(r"^#\[pymodule.*?(\w+)::fill\(m\)\n}", shared_object, re.MULTILINE | re.DOTALL)
    made = re.findall(r"^init!\(\w+, ([\w:]+)::init\);", shared_object, re.MULTILINE)
    assert len(filled) == shared_object.count("#[pymodule") >= 2
    assert len(made) == shared_object.count("init!(") >= 4
    bodies = [
        body
        for text in code.values()
        for body in re.findall(r"^pub fn fill\(m: .*?^}", text, re.MULTILINE | re.DOTALL)
    ]
    assert len(bodies) == len(filled)
    assert all("check_main_interpreter(" in body for body in bodies)
    inits = [
        body
        for text in code.values()
        for body in re.findall(r"^pub fn init\(\).*?^}", text, re.MULTILINE | re.DOTALL)
    ]
    assert len(inits) == len(made)
    assert all("MODULE.init()" in body for body in inits)


#: Native types whose objects hold no Python object, and so need not be shown to the garbage collector.
HOLD_NOTHING = {
    "ContextBase": "the core's context",
    "Gateway": "a server, whose engines and functions are the pools' own",
    "CallLog": "the core's journal, and tables of digests",
    "JournalBase": "the core's journal, and tickets",
    "Lent": "segments",
    "Missing": "nothing",
    "PoolHandle": "what the pool has, which the pool shows",
    "RecordReader": "a file",
    "ResultBuffer": "a segment",
    "SessionBase": "a session of the engine, whose arguments are bytes",
    "SharedBuffer": "a segment",
    "StreamFeed": "a task, whose future and stream show what it has",
    "StreamReader": "the attributes of asyncio's class, which that class shows",
    "TaskCall": "a call in bytes",
    "SharedArrayBase": "what NumPy's array holds, which NumPy's array shows",
}


def test_every_native_type_is_shown_to_the_collector() -> None:
    silent: set[str] = set()
    seen = 0
    for source in SOURCES:
        code = text(source)
        for name in re.findall(r"^#\[pyclass\(.*?struct (\w+)", code, re.MULTILINE | re.DOTALL):
            methods = re.search(rf"^#\[pymethods\]\nimpl {name} .*?^}}", code, re.MULTILINE | re.DOTALL)
            seen += 1
            if methods is None or "fn __traverse__" not in methods[0]:
                silent.add(name)
        for name, rest in re.findall(
            r'name: c"ropewalk\.[\w.]*?(\w+)"(?:\.as_ptr\(\))?,(.{0,400})', code, re.DOTALL
        ):
            seen += 1
            if "Py_TPFLAGS_HAVE_GC" not in rest and "flags," not in rest:
                silent.add(name)
    assert seen > 20, "the law does not see the types any more"
    assert silent == set(HOLD_NOTHING)
