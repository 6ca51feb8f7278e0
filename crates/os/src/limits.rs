//! The limits of this process, how much of each is used, and which limit caused a refusal.
//!
//! Source: getrlimit(2), cgroups(7).

use std::fs;
use std::io;

fn soft(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live structure to be filled.
    let got = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (got == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The most descriptors that this process may have open; `None` for no limit.
pub fn open_files() -> Option<u64> {
    soft(libc::RLIMIT_NOFILE)
}

/// The number of descriptors that this process has open, if `/proc` is readable.
pub fn open_now() -> Option<u64> {
    // One of the entries is the descriptor of the directory itself.
    fs::read_dir("/proc/self/fd").ok().map(|entries| (entries.count() as u64).saturating_sub(1))
}

/// Why a process could not be made, with the limits that may have refused it.
pub fn explain_fork(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            let mut found = Vec::new();
            if let Some(limit) = soft(libc::RLIMIT_NPROC) {
                found.push(format!(
                    "the user's limit of processes and threads (RLIMIT_NPROC, `ulimit -u`) is {limit}"
                ));
            }
            if let Some((most, now)) = pids_cgroup() {
                found.push(format!("the cgroup's (pids.max) is {most}, of which {now} are taken"));
            }
            if found.is_empty() {
                found.push(String::from(
                    "the limit of processes (RLIMIT_NPROC or the cgroup's pids.max) is reached",
                ));
            }
            format!("no process more can be made: {}", found.join("; "))
        }
        Some(libc::ENOMEM) => format!("no memory for another process: {error}"),
        _ => explain_open(error).unwrap_or_else(|| error.to_string()),
    }
}

/// The limit that refused a new descriptor; `None` if the cause is another one.
pub fn explain_open(error: &io::Error) -> Option<String> {
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            let limit = open_files().map_or_else(String::new, |limit| format!(" ({limit})"));
            Some(format!("the limit of open files{limit} is reached: RLIMIT_NOFILE, `ulimit -n`"))
        }
        Some(libc::ENFILE) => Some(String::from("the machine's limit of open files is reached: fs.file-max")),
        Some(libc::ENOBUFS | libc::ENOMEM) => Some(String::from(
            "the kernel has no memory for another socket: net.ipv4.tcp_mem, the cgroup's memory.max",
        )),
        _ => None,
    }
}

/// The tightest `pids.max` above this process, and how many of it are taken.
pub fn pids_cgroup() -> Option<(u64, u64)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut found: Option<(u64, u64)> = None;
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            "pids" => "/sys/fs/cgroup/pids",
            _ => continue,
        };
        let mut path = path.trim_start_matches('/');
        loop {
            let number = |name: &str| -> Option<u64> {
                fs::read_to_string(format!("{root}/{path}/{name}")).ok()?.trim().parse().ok()
            };
            if let (Some(most), Some(now)) = (number("pids.max"), number("pids.current"))
                && found.is_none_or(|(m, n)| most.saturating_sub(now) < m.saturating_sub(n))
            {
                found = Some((most, now));
            }
            let Some((parent, _)) = path.rsplit_once('/') else {
                if path.is_empty() {
                    break;
                }
                path = "";
                continue;
            };
            path = parent;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_counted() {
        let before = open_now().expect("/proc is there");
        let _more: Vec<_> = (0..200).map(|_| crate::eventfd::EventFd::new().expect("room")).collect();
        let after = open_now().expect("/proc is there");
        // Other tests open and close theirs meanwhile.
        assert!(after > before + 100, "{before} then {after}");
    }

    #[test]
    fn a_refusal_names_its_limit() {
        let said = |errno| explain_fork(&io::Error::from_raw_os_error(errno));
        assert!(said(libc::EAGAIN).contains("RLIMIT_NPROC") || said(libc::EAGAIN).contains("pids.max"));
        assert!(said(libc::EMFILE).contains("RLIMIT_NOFILE"));
        assert!(said(libc::ENFILE).contains("fs.file-max"));
    }
}
