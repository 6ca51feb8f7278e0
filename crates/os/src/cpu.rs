//! How many cores this process may use.

use std::fs;

/// Cores that this process may run on, by its affinity and its control group's quota, rounded up; 1 at least.
pub fn usable_cores() -> usize {
    let by_affinity = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    quota().map_or(by_affinity, |quota| by_affinity.min(quota)).max(1)
}

/// Cores that are switched on, whoever may use them; 1 at least.
pub fn online_cores() -> usize {
    // SAFETY: asks for a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

/// The control group's quota in cores, rounded up: version 2 of control groups.
fn quota() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let limit = fs::read_to_string(format!("/sys/fs/cgroup{path}/cpu.max"))
        .or_else(|_| fs::read_to_string("/sys/fs/cgroup/cpu.max"))
        .ok()?;
    parse_quota(&limit)
}

fn parse_quota(limit: &str) -> Option<usize> {
    let (quota, period) = limit.trim().split_once(' ')?;
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota.div_ceil(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_rounded_up() {
        assert_eq!(parse_quota("150000 100000\n"), Some(2));
        assert_eq!(parse_quota("max 100000\n"), None);
        assert!(usable_cores() >= 1 && online_cores() >= 1);
    }
}
