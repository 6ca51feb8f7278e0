//! How much memory there is, and how much of it a process uses.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The machine's memory in bytes, or the control group's limit if that is less; 0 if unknown.
pub fn total() -> u64 {
    let machine =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| kib(&text, "MemTotal:")).unwrap_or(0);
    machine.min(group_limit().unwrap_or(u64::MAX))
}

/// The control group's limit (version 2): the least of its own and its ancestors'.
pub fn group_limit() -> Option<u64> {
    group_path()?.ancestors().filter_map(|group| number(&group.join("memory.max"))).min()
}

/// The directory of this process's control group, or the mount's root in a container that does not show the rest.
fn group_path() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let full = Path::new(GROUPS).join(path);
    Some(if full.is_dir() { full } else { GROUPS.into() })
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Bytes that can be allocated now without swapping, within the control group's limit; `u64::MAX` if unknown.
pub fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kib(&text, "MemAvailable:"));
    machine.unwrap_or(u64::MAX).min(group_room().unwrap_or(u64::MAX))
}

/// The room that the control group (version 2) leaves, with its reclaimable cache counted as free.
fn group_room() -> Option<u64> {
    let room_of = |group: &Path| {
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cache = stat
            .lines()
            .find_map(|line| line.strip_prefix("inactive_file "))
            .and_then(|n| n.parse::<u64>().ok());
        let limit = number(&group.join("memory.max"))?;
        let used = number(&group.join("memory.current"))?;
        Some(limit.saturating_add(cache.unwrap_or(0)).saturating_sub(used))
    };
    group_path()?.ancestors().filter_map(room_of).min()
}

/// Bytes of a process that no other process shares; 0 if unknown.
pub fn private_bytes(pid: i32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { return 0 };
    kib(&text, "Private_Clean:").unwrap_or(0) + kib(&text, "Private_Dirty:").unwrap_or(0)
}

/// Resident bytes of a process, those that it shares included; 0 if unknown.
pub fn resident_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    resident(&text).unwrap_or(0)
}

/// The second field of proc_pid_statm(5).
fn resident(statm: &str) -> Option<u64> {
    let pages = statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?;
    Some(pages * crate::mmap::page_size() as u64)
}

/// Reads about a process whose id may be another's by now: what was read is kept only if the process lives afterwards,
/// because an id is not used again as long as its process lives.
fn of_living<T>(process: BorrowedFd<'_>, read: impl FnOnce() -> Option<T>) -> Option<T> {
    read().filter(|_| !process::wait_readable(process, Duration::ZERO))
}

/// The most that the private memory of a process can be, in bytes: what is resident and belongs to no file or shared
/// segment. Pages that it still shares with the process that forked it are counted, so this is no less than
/// [`private_bytes_of`], and costs a tenth of it. `process` is its pidfd; `None` if it has ended.
pub fn anonymous_bytes_of(pid: i32, process: BorrowedFd<'_>) -> Option<u64> {
    of_living(process, || anonymous(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?))
}

/// Bytes by proc_pid_statm(5), whose first fields are the size, the resident pages and those of files and segments.
fn anonymous(statm: &str) -> Option<u64> {
    let mut pages = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * crate::mmap::page_size() as u64)
}

/// The private memory of a process in bytes, as [`private_bytes`]; `None` if the process of this pidfd has ended.
pub fn private_bytes_of(pid: i32, process: BorrowedFd<'_>) -> Option<u64> {
    of_living(process, || Some(private_bytes(pid)).filter(|bytes| *bytes > 0))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;

    use super::*;
    use crate::pidfd;

    #[test]
    fn the_cheap_figure_is_no_less_than_the_exact_one() {
        let own = crate::process::current_pid();
        let process = pidfd::open(own).expect("this process");
        let more = std::hint::black_box(vec![1_u8; 8 << 20]);
        let exact = private_bytes_of(own, process.as_fd()).expect("it lives");
        let cheap = anonymous_bytes_of(own, process.as_fd()).expect("it lives");
        assert!(exact >= more.len() as u64 && cheap >= more.len() as u64, "{exact} and {cheap}");
    }

    #[test]
    fn a_process_that_has_ended_has_no_memory_whoever_has_its_id_now() {
        let mut child = Command::new("true").spawn().expect("started");
        let process = pidfd::open(i32::try_from(child.id()).expect("an id")).expect("a pidfd");
        child.wait().expect("collected");
        // This process stands for the one that has the id now.
        let own = crate::process::current_pid();
        assert_eq!(anonymous_bytes_of(own, process.as_fd()), None);
        assert_eq!(private_bytes_of(own, process.as_fd()), None);
    }

    #[test]
    fn what_is_resident_and_shared_with_nobody_is_counted() {
        let page = crate::mmap::page_size() as u64;
        assert_eq!(anonymous("100 40 15 1 0 30 0"), Some(25 * page));
        assert_eq!(anonymous("100 4 15"), Some(0), "the kernel counts the two at different times");
        assert_eq!(anonymous("100 x 15"), None);
        assert_eq!(anonymous(""), None);
    }

    #[test]
    fn what_is_resident_is_the_second_field() {
        let page = crate::mmap::page_size() as u64;
        assert_eq!(resident("100 40 15 1 0 30 0"), Some(40 * page));
        assert_eq!((resident("100 x"), resident("")), (None, None));
        assert_eq!(resident_bytes(-1), 0);
    }

    #[test]
    fn this_process_has_some_of_it() {
        let own = private_bytes(crate::process::current_pid());
        assert!(resident_bytes(crate::process::current_pid()) >= own / 2);
        assert!(own > 0 && own < total());
        assert!(available() > 0);
        assert!(group_limit().is_none_or(|limit| limit >= total()));
    }
}
