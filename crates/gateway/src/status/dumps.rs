//! What `faulthandler` of CPython writes: the stacks of threads, as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A call in a stack.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Frame {
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) function: String,
    /// The line's text, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
}

/// A thread, its innermost call first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Thread {
    pub(super) name: String,
    /// Whether it waits for tasks.
    #[serde(default)]
    pub(super) idle: bool,
    pub(super) frames: Vec<Frame>,
}

/// How often each stack was seen: outermost call first, `;` between calls.
pub(super) type Folded = BTreeMap<String, u64>;

/// The file of the function in which a worker waits for tasks.
const LANE: (&str, &str) = ("ropewalk/pool/worker/_life.py", "_lane");

/// Reads the threads of a dump. What is no dump has none.
pub(super) fn threads(text: &str) -> Vec<Thread> {
    let mut threads: Vec<Thread> = Vec::new();
    for line in text.lines() {
        if let Some(frame) = frame(line) {
            if let Some(thread) = threads.last_mut() {
                thread.frames.push(frame);
            }
        } else if line.ends_with("(most recent call first):") {
            threads.push(Thread { name: name(line), idle: false, frames: Vec::new() });
        }
    }
    for thread in &mut threads {
        let first = thread.frames.first();
        thread.idle = first.is_some_and(|frame| frame.function == LANE.1 && frame.file.ends_with(LANE.0));
    }
    threads
}

/// `Current thread 0x1 [name] (most recent call first):`.
fn name(line: &str) -> String {
    let number = line.split("0x").nth(1).and_then(|rest| rest.split([' ', '(']).next()).unwrap_or_default();
    let named = line.split_once('[').and_then(|(_, rest)| rest.rsplit_once(']')).map(|(name, _)| name);
    named.map_or_else(|| format!("thread 0x{}", number.trim_start_matches('0')), str::to_owned)
}

/// `  File "path", line 3 in function`.
fn frame(line: &str) -> Option<Frame> {
    let (file, rest) = line.strip_prefix("  File \"")?.rsplit_once("\", line ")?;
    let (number, function) = rest.split_once(" in ")?;
    let (file, function) = (file.to_owned(), function.to_owned());
    Some(Frame { file, line: number.parse().ok()?, function, code: None })
}

/// Counts the stacks of a dump.
pub(super) fn fold(threads: &[Thread], folded: &mut Folded) {
    for thread in threads {
        let mut stack = without_separators(&thread.name);
        for Frame { file, function, .. } in thread.frames.iter().rev() {
            stack.push(';');
            stack.push_str(&without_separators(&format!("{function} ({file})")));
        }
        *folded.entry(stack).or_default() += 1;
    }
}

fn without_separators(text: &str) -> String {
    text.replace([';', '\n'], ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
Thread 0x00007f00 [other] (most recent call first):
  File \"/lib/threading.py\", line 320 in wait
  File \"/lib/threading.py\", line 975 in _bootstrap

Current thread 0x00007f01 (most recent call first):
  File \"/app/a;b.py\", line 12 in <lambda>
  File \"/app/a;b.py\", line 20 in run
  ...
";

    #[test]
    fn a_dump_has_threads_with_their_calls() {
        let read = threads(DUMP);
        assert_eq!(read.iter().map(|thread| &*thread.name).collect::<Vec<_>>(), ["other", "thread 0x7f01"]);
        assert_eq!((read[0].frames[0].line, &*read[1].frames[0].function), (320, "<lambda>"));
        let mut folded = Folded::new();
        fold(&read, &mut folded);
        fold(&read, &mut folded);
        assert_eq!(folded.get("thread 0x7f01;run (/app/a,b.py);<lambda> (/app/a,b.py)"), Some(&2));
        assert!(threads("nonsense\n  File \"x\", line y in z\n").is_empty());
    }

    #[test]
    fn a_thread_that_waits_for_tasks_is_idle() {
        let call = "  File \"/x/ropewalk/pool/worker/_life.py\", line 1 in _lane\n";
        assert!(threads(&format!("Thread 0x1 (most recent call first):\n{call}"))[0].idle);
    }
}
