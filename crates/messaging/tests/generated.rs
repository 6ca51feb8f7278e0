//! Python's enums and the reference page of socket options say what the tables in `src/options` and `src/error.rs` say.
//!
//! With `ROPEWALK_GENERATE` set (`make generate` sets it) the files are written; without it they are compared.

use std::fmt::Write as _;
use std::path::Path;

use ropewalk_messaging::SocketType;
use ropewalk_messaging::errno;
use ropewalk_messaging::options::{
    Access, Definition, NUMBERS, Support, Value, ValueType, context, definition,
};

const PYTHON: &str = r#""""The options of sockets, by libzmq's names and numbers: a table.

`make generate` makes this file from `crates/messaging/src/options/table.rs`.
"""

from __future__ import annotations

from ropewalk.zmq._enums import NumberedOption, OptionKind


class SocketOption(NumberedOption):
    """What `Socket.get` and `Socket.set` know by name. A socket refuses what it cannot honour."""

"#;

const PAGE: &str = "# Socket options

`make generate` makes this page from `crates/messaging/src/options/table.rs`. How options are set and read is in
[messaging.md](messaging.md#options).

Names, numbers, ranges and defaults are libzmq 4.3.5's. A socket refuses an option that it does not have, and a value
that is out of range, with `EINVAL`. Times are in milliseconds.

| option | number | type | values | default | sockets | access | what it is |
|---|---|---|---|---|---|---|---|
";

/// All rows, by their numbers.
fn rows() -> Vec<Definition> {
    let mut rows: Vec<Definition> = NUMBERS.iter().copied().filter_map(definition).collect();
    rows.sort_by_key(|row| row.number);
    rows
}

fn number(row: &Definition) -> String {
    if row.number > 0xffff { format!("{:#x}", row.number) } else { row.number.to_string() }
}

fn python() -> String {
    let mut file = PYTHON.to_owned();
    let mut names = Vec::new();
    for row in rows() {
        let kind = match row.value {
            ValueType::Int => "INT",
            ValueType::Int64 => "INT64",
            ValueType::Bytes => "BYTES",
            ValueType::Descriptor => "DESCRIPTOR",
        };
        let _ = writeln!(file, "    #: {}", row.about);
        for name in [row.name].iter().chain(row.aliases) {
            let _ = writeln!(file, "    {name} = {}, OptionKind.{kind}", number(&row));
            names.push(*name);
        }
    }
    file.push_str("\n\n");
    for name in &names {
        let _ = writeln!(file, "{name} = SocketOption.{name}");
    }
    names.sort_unstable();
    file.push_str("\n__all__ = [\n");
    for name in names.into_iter().chain(["SocketOption"]) {
        let _ = writeln!(file, "    \"{name}\",");
    }
    file.push_str("]\n");
    file
}

fn page() -> String {
    let mut page = PAGE.to_owned();
    let mut refused = String::new();
    for row in rows() {
        let mut names = format!("`{}`", row.name);
        for alias in row.aliases {
            let _ = write!(names, ", `{alias}`");
        }
        let value_type = match row.value {
            ValueType::Int | ValueType::Descriptor => "int",
            ValueType::Int64 => "int64",
            ValueType::Bytes => "bytes",
        };
        let access = match row.access {
            Access::Read => "read",
            Access::Write => "set",
            Access::ReadWrite => "both",
        };
        let sockets = if row.sockets == SocketType::ALL {
            "all".to_owned()
        } else {
            row.sockets.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
        };
        let (values, default) = match &row.support {
            Support::Kept { values, default } => (values.clone(), shown(default)),
            Support::Answered => (String::new(), String::new()),
            Support::Refused => {
                let _ = writeln!(refused, "| {names} | {} | {} |", number(&row), row.about);
                continue;
            }
        };
        let _ = writeln!(
            page,
            "| {names} | {} | {value_type} | {values} | {default} | {sockets} | {access} | {} |",
            number(&row),
            row.about,
        );
    }
    page.push_str("\n## Refused\n\nThese have names and numbers, and no socket takes them.\n\n");
    page.push_str("| option | number | what it is elsewhere |\n|---|---|---|\n");
    page + &refused
}

fn shown(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::Int64(number) => number.to_string(),
        Value::Uint64(number) => number.to_string(),
        Value::Bytes(_) => "none".to_owned(),
    }
}

/// The enums of Python with the members made anew that have numbers here, too.
fn enums(file: &str) -> String {
    let file = between(file, "libzmq's own", errno::OWN);
    between(&file, "options of a context", context::NAMES)
}

/// A file with the members of an enum between two marks made anew.
fn between(file: &str, mark: &str, members: &[(&str, i32)]) -> String {
    let (start, end) = (format!("    # {mark}: made by `make generate`\n"), format!("    # end of {mark}\n"));
    let (head, rest) = file.split_once(&start).unwrap_or_else(|| panic!("no {start}"));
    let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
    let members: String = members.iter().map(|(name, number)| format!("    {name} = {number}\n")).collect();
    [head, &start, &members, &end, tail].concat()
}

#[test]
fn generated_files_match_the_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = |place: &str| std::fs::read_to_string(root.join(place)).unwrap_or_default();
    let parts = "python/ropewalk/zmq/_enums.py";
    let files = [
        (parts, enums(&found(parts))),
        ("python/ropewalk/zmq/_socket_options.py", python()),
        ("docs/messaging-options.md", page()),
    ];
    for (place, made) in files {
        if found(place) == made {
            continue;
        }
        assert!(
            std::env::var_os("ROPEWALK_GENERATE").is_some(),
            "{place} differs from the tables: run `make generate`"
        );
        std::fs::write(root.join(place), made).expect(place);
    }
}
