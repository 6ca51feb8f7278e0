//! The generated Python classes and documentation match the table of errors.
//!
//! With `ROPEWALK_GENERATE` set (`make generate` sets it) the files are written; without it they are compared.

use std::fs;
use std::path::{Path, PathBuf};

use ropewalk_base::Code;
use ropewalk_base::entry::Entry;

/// Columns of a line of code: ruff's `line-length`.
const CODE: usize = 110;
/// Columns of a line of prose.
const PROSE: usize = 120;

fn name(entry: &Entry) -> &str {
    entry.class.to_str().expect("a class's name is ASCII")
}

fn module(entry: &Entry) -> &str {
    entry.module.to_str().expect("a module's name is ASCII")
}

/// What failed, a string for each paragraph.
fn paragraphs(entry: &Entry) -> Vec<String> {
    let lines: Vec<&str> = entry.doc.iter().map(|line| line.trim()).collect();
    lines.split(|line| line.is_empty()).map(|lines| lines.join(" ")).collect()
}

/// Words in lines of at most so many columns, each after an indent.
fn wrap(text: &str, columns: usize, indent: &str) -> String {
    let mut lines = vec![String::from(indent)];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("one line at least");
        if last.len() == indent.len() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= columns {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines.join("\n")
}

/// A string as ruff's formatter leaves it behind `name = `.
fn assignment(name: &str, text: &str) -> String {
    let quote = if text.contains('"') { '\'' } else { '"' };
    assert!(!text.contains(['\\', '\'']) || quote == '"' && !text.contains('\\'), "{text} needs an escape");
    let short = format!("    {name} = {quote}{text}{quote}");
    let inner = format!("        {quote}{text}{quote}");
    if short.len() > CODE && inner.len() <= CODE { format!("    {name} = (\n{inner}\n    )") } else { short }
}

/// A class's first lines in Python: its bases, its docstring and what the table gives it.
fn head(entry: &Entry) -> String {
    let paragraphs = paragraphs(entry);
    let doc = if let [only] = &paragraphs[..]
        && only.len() + 10 <= PROSE
    {
        format!("    \"\"\"{only}\"\"\"")
    } else {
        let text: Vec<String> = paragraphs.iter().map(|text| wrap(text, PROSE - 3, "    ")).collect();
        format!("    \"\"\"{}\n    \"\"\"", text.join("\n\n").trim_start())
    };
    let root = if entry.bases == ["Exception"] { ": ClassVar[str]" } else { "" };
    let mut head = format!("class {}({}):\n{doc}\n", name(entry), entry.bases.join(", "));
    for line in
        [assignment(&format!("code{root}"), entry.code), assignment(&format!("remedy{root}"), entry.remedy)]
    {
        head.push('\n');
        head.push_str(&line);
    }
    if let [(first, _), rest @ ..] = entry.numbers {
        let rest: Vec<String> = rest.iter().map(|(number, _)| format!(" _errno.{number}")).collect();
        head.push_str(&format!("\n    _numbers = (_errno.{first},{})", rest.join(",")));
    }
    head
}

/// Where a class's head stands in the source of its module: up to the end of the last of its assignments.
fn place(source: &str, name: &str) -> std::ops::Range<usize> {
    let start =
        source.find(&format!("\nclass {name}(")).unwrap_or_else(|| panic!("there is no class {name}")) + 1;
    let mut at = start + source[start..].find("\n    remedy").expect("a remedy") + 1;
    loop {
        let line = source[at..].lines().next().unwrap_or_default();
        at += line.len();
        if line.ends_with('(') {
            at += source[at..].find("\n    )").expect("a closing bracket") + "\n    )".len();
        }
        if !source[at..].starts_with("\n    _numbers = ") {
            return start..at;
        }
        at += 1;
    }
}

/// The source of a module with every head made anew.
fn classes(mut source: String, of: &str) -> String {
    for code in Code::ALL {
        let entry = code.entry();
        if module(entry) == of {
            let range = place(&source, name(entry));
            source.replace_range(range, &head(entry));
        }
    }
    source
}

/// The page's table.
fn rows() -> String {
    let mut table = String::from("| class | code | is also | when |\n|---|---|---|---|\n");
    for code in Code::ALL {
        let entry = code.entry();
        let own: Vec<&str> = entry.bases.iter().copied().filter(|base| *base != "RopewalkError").collect();
        let bases = if own.is_empty() { vec!["RopewalkError"] } else { own };
        let bases: Vec<String> = bases.iter().map(|base| format!("`{base}`")).collect();
        let text = &paragraphs(entry)[0];
        let text = text.strip_suffix('.').unwrap_or(text);
        let row = format!("| `{}` | `{}` | {} | {text} |\n", name(entry), entry.code, bases.join(", "));
        table.push_str(&row);
    }
    table
}

/// The page's paragraphs.
fn meanings() -> String {
    let row = |code: &Code| {
        let entry = code.entry();
        let text = paragraphs(entry).join(" ");
        let text = format!("**`{}`**, `{}`: {text} *What to try:* {}", entry.code, name(entry), entry.remedy);
        wrap(&text, PROSE, "") + "\n"
    };
    Code::ALL.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// The page with the text between two marks made anew.
fn between(mut page: String, mark: &str, text: &str) -> String {
    let (start, end) =
        (format!("<!-- {mark}: made by `make generate` -->\n"), format!("<!-- end of {mark} -->\n"));
    let from = page.find(&start).unwrap_or_else(|| panic!("no {start}")) + start.len();
    let to = from + page[from..].find(&end).unwrap_or_else(|| panic!("no {end}"));
    page.replace_range(from..to, &format!("\n{text}\n"));
    page
}

/// Compares a file with what it should be, or writes it.
fn hold(path: &str, make: impl FnOnce(String) -> String) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let is = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let should = make(is.clone());
    if is == should {
        return;
    }
    if std::env::var_os("ROPEWALK_GENERATE").is_some() {
        fs::write(&path, should).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let differs = is.lines().zip(should.lines()).position(|(is, should)| is != should).map_or(0, |at| at + 1);
    panic!(
        "{}, line {differs}, is not what crates/base/src/table.rs says: run `make generate`",
        path.display()
    );
}

#[test]
#[cfg_attr(miri, ignore = "reads files of the repository")]
fn pythons_classes_are_the_tables() {
    let mut modules: Vec<&str> = Code::ALL.iter().map(|code| module(code.entry())).collect();
    modules.dedup();
    for module in modules {
        let path = format!("python/{}.py", module.replace('.', "/"));
        hold(&path, |source| classes(source, module));
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads files of the repository")]
fn the_page_of_errors_is_the_tables() {
    hold("docs/errors.md", |page| between(between(page, "classes", &rows()), "codes", &meanings()));
}

#[test]
fn every_row_is_whole() {
    for (at, code) in Code::ALL.iter().enumerate() {
        let entry = code.entry();
        let ours = |base: &str| Code::ALL[..at].iter().any(|before| name(before.entry()) == base);
        let known =
            ["Exception", "BrokenProcessPool", "RuntimeError", "OSError", "ValueError", "ImportError"];
        let pythons = |base: &str| known.contains(&base) || base.contains('.') || base.ends_with("Error");
        assert_eq!(format!("{code:?}"), name(entry));
        assert!(at == 0 || ours(entry.bases[0]), "{code:?} derives first from a row above it");
        assert!(entry.bases.iter().all(|base| ours(base) || pythons(base)), "{code:?} has an unknown base");
        assert!(entry.code.starts_with("RW-"), "{code:?}");
        assert!(
            entry.remedy.ends_with('.') && paragraphs(entry).iter().all(|text| text.ends_with(['.', '`']))
        );
        let words = [&paragraphs(entry).join(" "), entry.remedy].join(" ");
        let riddle =
            |word: &str| ["bell", "letter", "door", "bed", "told", "who", "nobody", "mend"].contains(&word);
        assert!(
            !words.split(|c: char| !c.is_alphabetic()).any(riddle),
            "{code:?} is not in the field's terms"
        );
        let first = |other: &&Code| other.entry().code == entry.code;
        assert_eq!(Code::ALL.iter().filter(first).count(), 1, "{code:?} shares its code");
    }
}
