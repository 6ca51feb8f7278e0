//! Generates from the table of socket options: Python's enum and the reference page. The test fails where a file
//! differs; `ROPEWALK_REGENERATE=1 cargo test -p ropewalk-messaging --test option_table` writes it.

use std::fmt::Write as _;
use std::path::Path;

use ropewalk_messaging::SocketType;
use ropewalk_messaging::options::{Access, Definition, NUMBERS, Support, Value, ValueType, definition};

const PYTHON: &str = r#""""The options of sockets, by libzmq's names and numbers: a table.

`crates/messaging/tests/option_table.rs` makes this file from `crates/messaging/src/options/table.rs`.
"""

from __future__ import annotations

from ropewalk.zmq._enums import NumberedOption, OptionKind


class SocketOption(NumberedOption):
    """What `Socket.get` and `Socket.set` know by name. A socket refuses what it cannot honour."""

"#;

const PAGE: &str = "# Socket options

`crates/messaging/tests/option_table.rs` makes this page from `crates/messaging/src/options/table.rs`. How options are
set and read is in [messaging.md](messaging.md#options).

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

#[test]
fn what_is_made_from_the_table_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (place, made) in
        [("python/ropewalk/zmq/_socket_options.py", python()), ("docs/messaging-options.md", page())]
    {
        let path = root.join(place);
        if std::env::var_os("ROPEWALK_REGENERATE").is_some() {
            std::fs::write(&path, &made).expect(place);
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == made,
            "{place} differs from the table; ROPEWALK_REGENERATE=1 with this test writes it"
        );
    }
}
