//! How much memory this machine, or the control group that the process runs in, has and can spare.

use std::path::{Path, PathBuf};

/// Memory that a process may use.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Machine {
    /// The most that there can ever be: the machine's memory, or a smaller limit of a control group.
    pub total: u64,
    /// What is left now: the smaller of the machine's and the control groups'.
    pub free: u64,
    /// The control group whose limit leaves the least, where that is less than the machine's.
    pub group: Option<PathBuf>,
}

/// A control group's limit and what is left of it.
struct Group {
    limit: u64,
    free: u64,
    folder: PathBuf,
}

/// Where one version of control groups keeps its files.
struct Version {
    /// Its folders below `/sys/fs/cgroup`; the first that is there counts.
    mounts: &'static [&'static str],
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: file pages that the system takes back first.
    reclaimable: &'static str,
}

const V1: Version = Version {
    mounts: &["memory"],
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

const V2: Version = Version {
    mounts: &["", "unified"],
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: "inactive_file",
};

impl Machine {
    /// What the system says; None where it does not say it as Linux does.
    pub fn read() -> Option<Self> {
        Self::read_under(Path::new("/"))
    }

    /// As [`Machine::read`], with `proc` and `sys` below `root`.
    pub fn read_under(root: &Path) -> Option<Self> {
        let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
        let kib = |name: &str| Some(field(&meminfo, name)?.saturating_mul(1024));
        let (total, free) = (kib("MemTotal:")?, kib("MemAvailable:")?);
        let mut machine = Self { total, free: free.min(total), group: None };
        let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        for line in groups.lines() {
            // `4:memory:/path` (version 1) or `0::/path` (version 2).
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let version = match controllers {
                "" => &V2,
                names if names.split(',').any(|name| name == "memory") => &V1,
                _ => continue,
            };
            version.groups(root, path).into_iter().for_each(|group| machine.bound_by(group));
        }
        Some(machine)
    }

    fn bound_by(&mut self, group: Group) {
        self.total = self.total.min(group.limit);
        if group.free < self.free {
            self.free = group.free;
            self.group = Some(group.folder);
        }
    }
}

impl Version {
    /// The groups that bound a process in `path`: that folder and those above it, as far as this
    /// process sees them. In a container the path may be the host's; then only the top is seen.
    fn groups(&self, root: &Path, path: &str) -> Vec<Group> {
        let mut found = Vec::new();
        for mount in self.mounts {
            let top = root.join("sys/fs/cgroup").join(mount);
            let path = Path::new(path.trim_start_matches('/'));
            let folders = path.ancestors().filter(|folder| {
                !folder.components().any(|part| part == std::path::Component::ParentDir)
            });
            found.extend(folders.filter_map(|folder| self.group(&top.join(folder))));
        }
        found
    }

    fn group(&self, folder: &Path) -> Option<Group> {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        // "max" (version 2) is no limit; version 1 writes one that no machine reaches.
        let limit: u64 = read(self.limit)?.trim().parse().ok()?;
        let used: u64 = read(self.usage)?.trim().parse().ok()?;
        let reclaimable = read("memory.stat").and_then(|stat| field(&stat, self.reclaimable));
        let used = used.saturating_sub(reclaimable.unwrap_or(0));
        Some(Group { limit, free: limit.saturating_sub(used), folder: folder.to_owned() })
    }
}

/// The number behind a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A machine of 1,000 MiB with 800 to spare, and these files.
    fn machine(files: &[(&str, &str)]) -> (Option<Machine>, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        let meminfo =
            ("proc/meminfo", "MemTotal: 1024000 kB\nMemFree: 5 kB\nMemAvailable: 819200 kB");
        for (path, text) in std::iter::once(&meminfo).chain(files) {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        (Machine::read_under(root.path()), root)
    }

    fn bytes(mib: u64) -> String {
        (mib * MIB).to_string()
    }

    #[test]
    fn without_control_groups_the_machine_counts() {
        let (machine, _) = machine(&[]);
        assert_eq!(machine, Some(Machine { total: 1000 * MIB, free: 800 * MIB, group: None }));
    }

    #[test]
    fn a_limit_of_version_2_counts_less_what_is_used() {
        let (machine, root) = machine(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", &bytes(500)),
            ("sys/fs/cgroup/a/memory.current", &bytes(300)),
            ("sys/fs/cgroup/a/memory.stat", &format!("anon 5\ninactive_file {}\n", bytes(50))),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", &bytes(299)),
        ]);
        let group = Some(root.path().join("sys/fs/cgroup/a"));
        assert_eq!(machine, Some(Machine { total: 500 * MIB, free: 250 * MIB, group }));
    }

    #[test]
    fn a_limit_of_version_1_counts_also_where_only_its_top_is_seen() {
        let limits: [(&str, &str); 3] = [
            ("proc/self/cgroup", "4:cpu:/x\n3:memory:/docker/of-the-host\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", &bytes(600)),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", &bytes(100)),
        ];
        let (bound, root) = machine(&limits);
        let group = Some(root.path().join("sys/fs/cgroup/memory"));
        assert_eq!(bound, Some(Machine { total: 600 * MIB, free: 500 * MIB, group }));
        // Version 1 writes a number also where there is no limit.
        let unlimited = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let (free, _root) = machine(&[limits[0], unlimited, limits[2]]);
        assert_eq!(free, Some(Machine { total: 1000 * MIB, free: 800 * MIB, group: None }));
    }

    #[test]
    fn damaged_files_bound_nothing_and_a_used_up_limit_leaves_nothing() {
        let (machine_, _root) = machine(&[
            ("proc/self/cgroup", "0::/../../etc\nnonsense\n7:memory\n"),
            ("sys/fs/cgroup/memory.max", "many\n"),
        ]);
        assert_eq!(machine_.unwrap().group, None);
        let (full, _root) = machine(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", &bytes(100)),
            ("sys/fs/cgroup/memory.current", &bytes(101)),
        ]);
        assert_eq!(full.unwrap().free, 0);
        assert_eq!(Machine::read_under(Path::new("/nowhere")), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_memory() {
        let machine = Machine::read().unwrap();
        assert!(machine.total >= machine.free && machine.free > 0, "{machine:?}");
    }
}
