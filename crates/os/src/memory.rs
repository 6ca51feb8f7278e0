//! How much memory there is, and how much of it a process uses.

use std::fs;
use std::path::{Path, PathBuf};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some_of_it() {
        let own = private_bytes(crate::process::current_pid());
        assert!(own > 0 && own < total());
        assert!(available() > 0);
        assert!(group_limit().is_none_or(|limit| limit >= total()));
    }
}
