//! How many cores this process may use.

use std::fs;
use std::path::Path;

/// Cores that this process may run on, by its affinity and its control group's quota, rounded up; 1 at least.
pub fn usable_cores() -> usize {
    let by_affinity = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    quota().map_or(by_affinity, |quota| by_affinity.min(quota)).max(1)
}

/// Cores that are switched on, whether or not this process may use them; 1 at least.
pub fn online_cores() -> usize {
    // SAFETY: the call takes a number and touches no memory of ours.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

/// The control group's quota in cores, rounded up, of version 2 or 1 of control groups.
fn quota() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    quota_under(Path::new("/"), &groups, &mounts)
}

/// The quota that `/proc/self/cgroup` and `/proc/self/mountinfo` lead to, in a tree of files.
///
/// A container may see its own group at the mount's root instead of at the path that `cgroup` names, so this looks at
/// both places.
fn quota_under(tree: &Path, groups: &str, mounts: &str) -> Option<usize> {
    let read = |mount: &str, path: &str, name: &str| {
        let mount = tree.join(mount.trim_start_matches('/'));
        let inner = mount.join(path.trim_start_matches('/')).join(name);
        fs::read_to_string(inner).or_else(|_| fs::read_to_string(mount.join(name))).ok()
    };
    let second = groups.lines().find_map(|line| line.strip_prefix("0::")).and_then(|path| {
        let mount = mount_of(mounts, |kind, _| kind == "cgroup2").unwrap_or("/sys/fs/cgroup");
        parse_quota(&read(mount, path, "cpu.max")?)
    });
    let first = groups.lines().find_map(cpu_group_of_version_1).and_then(|path| {
        let holds_cpu =
            |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|o| o == "cpu");
        let mount = mount_of(mounts, holds_cpu).unwrap_or("/sys/fs/cgroup/cpu");
        let quota: usize = read(mount, path, "cpu.cfs_quota_us")?.trim().parse().ok()?;
        let period: usize = read(mount, path, "cpu.cfs_period_us")?.trim().parse().ok()?;
        (period > 0).then(|| quota.div_ceil(period))
    });
    // A machine with both has the controller in one of them.
    second.into_iter().chain(first).min()
}

/// The group's path in a line `4:cpu,cpuacct:/path`.
fn cpu_group_of_version_1(line: &str) -> Option<&str> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    controllers.split(',').any(|name| name == "cpu").then_some(path)
}

/// The first mount point whose file system and superblock options are wanted.
fn mount_of(mounts: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        if wanted(kind, options) { before.split(' ').nth(4) } else { None }
    })
}

fn parse_quota(limit: &str) -> Option<usize> {
    let (quota, period) = limit.trim().split_once(' ')?;
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota.div_ceil(period))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn quotas_are_rounded_up() {
        assert_eq!(parse_quota("150000 100000\n"), Some(2));
        assert_eq!(parse_quota("max 100000\n"), None);
        assert!(usable_cores() >= 1 && online_cores() >= 1);
    }

    /// A folder of its own with a tree of files; dropping it removes them.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("ropewalk-cgroup-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MOUNTS: &str = "30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct\n\
        32 30 0:28 / /sys/fs/cgroup/cpuset rw,nosuid - cgroup cgroup rw,cpuset\n";

    #[test]
    fn version_1_has_its_quota_in_two_files() {
        let groups = "5:cpuset:/c\n4:cpu,cpuacct:/job\n1:name=systemd:/x\n";
        let place = "sys/fs/cgroup/cpu,cpuacct/job";
        let files = [
            (format!("{place}/cpu.cfs_quota_us"), "250000\n"),
            (format!("{place}/cpu.cfs_period_us"), "100000\n"),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = Tree::new("one", &files);
        assert_eq!(quota_under(&tree.0, groups, MOUNTS), Some(3));
        assert_eq!(quota_under(&tree.0, "5:cpuset:/job\n", MOUNTS), None);
    }

    #[test]
    fn version_1_without_a_quota_says_minus_one() {
        let tree = Tree::new(
            "none",
            &[
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(quota_under(&tree.0, "4:cpu,cpuacct:/\n", MOUNTS), None);
    }

    #[test]
    fn a_container_sees_its_group_at_the_mounts_root() {
        let tree = Tree::new(
            "container",
            &[
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(quota_under(&tree.0, "4:cpu:/docker/0123\n", ""), Some(1));
        let tree = Tree::new("second", &[("sys/fs/cgroup/cpu.max", "400000 100000\n")]);
        assert_eq!(quota_under(&tree.0, "0::/docker/0123\n", ""), Some(4));
        assert_eq!(quota_under(&tree.0, "nonsense", "nonsense"), None);
    }
}
