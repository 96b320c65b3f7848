//! Why a signal ended a process, where the kernel tells: out of memory, or with a core file or not.
//!
//! Kept true: a process counts as killed for memory only if the kernel's counters of such kills, of
//! the machine and of its control group, have grown while it ran (`/proc/vmstat`, `memory.events`,
//! `memory.oom_control`), and for its processor time only if it has used all that its limit allows.

use eyrie_control::Death;
use std::fs;
use std::path::{Path, PathBuf};

const CGROUP2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const CGROUP1_MEMORY: &str = "/sys/fs/cgroup/memory";
/// Limits beyond this are none (cgroup v1 says 2^63 less a page).
const UNLIMITED_BYTES: u64 = 1 << 60;

/// A control group that accounts for memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    /// Where the hierarchy is mounted.
    root: PathBuf,
    folder: PathBuf,
    v2: bool,
}

/// What the kernel's counters said when a process began.
#[derive(Debug, Clone, Default)]
pub(super) struct Before {
    group: Option<(Group, u64)>,
    machine: Option<u64>,
}

impl Before {
    /// Of a process that lives, or was not collected yet.
    pub fn of(pid: libc::pid_t) -> Before {
        let group = Group::of(pid);
        let group = group.and_then(|group| Some((group.kills()?, group)));
        Before { group: group.map(|(kills, group)| (group, kills)), machine: machine_kills() }
    }

    /// Why a process was killed that was not collected yet, if it was for memory.
    pub fn memory(&self, pid: libc::pid_t) -> Option<String> {
        // It may have gone to another group since it began.
        let now = Before::of(pid);
        // This counts those of all groups, too.
        if now.machine.zip(self.machine).is_none_or(|(now, before)| now <= before) {
            return None;
        }
        let known = now.group.filter(|(group, _)| !group.hides_the_dead());
        if let Some((group, kills)) = &known {
            let before = self.group.as_ref().filter(|(same, _)| same == group);
            if *kills <= before.map_or(0, |(_, kills)| *kills) {
                return None;
            }
        }
        let grew = |(group, before): &(Group, u64)| group.kills().is_some_and(|now| now > *before);
        let group = known.as_ref().or(self.group.as_ref().filter(|before| grew(before)));
        Some(match group.and_then(|(group, _)| group.limit_bytes()) {
            Some(bytes) => format!("killed for memory: the cgroup allows {}", megabytes(bytes)),
            None => String::from("killed for memory: its cgroup, or the machine, has no more"),
        })
    }
}

/// The cause of a death, for people. `dumped`: whether the kernel wrote a core file, if that is
/// known.
pub(super) fn of(
    before: &Before,
    pid: libc::pid_t,
    death: Death,
    dumped: Option<bool>,
) -> Option<String> {
    let Death::Signal(signal) = death else { return None };
    if signal == libc::SIGKILL {
        return before.memory(pid).or_else(|| processor_time(pid));
    }
    if signal == libc::SIGXCPU {
        return Some(String::from("it used more processor time than its limit, ulimit -t"));
    }
    if signal == libc::SIGXFSZ {
        return Some(String::from("it wrote a file beyond its limit, ulimit -f"));
    }
    if !eyrie_process::signals::is_own_bug(signal) {
        return None;
    }
    Some(String::from(if dumped? {
        "core dumped"
    } else {
        "no core file: to have one, ulimit -c unlimited"
    }))
}

/// The kernel kills by SIGKILL what has used more processor time than the hard limit, which is the
/// soft one, too, unless only that was set.
fn processor_time(pid: libc::pid_t) -> Option<String> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // SAFETY: plain system call.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    used_up(&limits, &stat, u64::try_from(ticks).ok()?)
}

fn used_up(limits: &str, stat: &str, ticks: u64) -> Option<String> {
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max cpu time"))?;
    let seconds: u64 = limit.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let used = next()? + next()?;
    // What is told is rounded.
    (used + 1 >= seconds * ticks).then(|| {
        format!(
            "killed as it had used all the processor time of its limit ({seconds} s, ulimit -t)"
        )
    })
}

impl Group {
    fn of(pid: libc::pid_t) -> Option<Group> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Group::parse(&text, Path::new(CGROUP1_MEMORY), &CGROUP2.map(Path::new))
    }

    /// From the text of `/proc/PID/cgroup` (cgroups(7)).
    fn parse(text: &str, v1: &Path, v2: &[&Path]) -> Option<Group> {
        let mut groups = text.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            Some((controllers, path.trim_end_matches(" (deleted)").trim_start_matches('/')))
        });
        let all: Vec<(&str, &str)> = groups.by_ref().collect();
        let of_v1 = all.iter().find(|(names, _)| names.split(',').any(|name| name == "memory"));
        if let Some((_, path)) = of_v1 {
            return Some(Group { root: v1.into(), folder: v1.join(path), v2: false });
        }
        let (_, path) = all.iter().find(|(names, _)| names.is_empty())?;
        // A process in a namespace of its own names its group from there.
        let has = |root: &&&Path| root.join(path).join("memory.events").exists();
        let root = v2.iter().find(has)?;
        Some(Group { root: root.to_path_buf(), folder: root.join(path), v2: true })
    }

    /// Of a process that ends the kernel names the root in a hierarchy of version 1.
    fn hides_the_dead(&self) -> bool {
        !self.v2 && self.folder == self.root
    }

    /// How many of its processes were killed for memory.
    fn kills(&self) -> Option<u64> {
        let name = if self.v2 { "memory.events" } else { "memory.oom_control" };
        field(&fs::read_to_string(self.folder.join(name)).ok()?, "oom_kill")
    }

    /// The lowest limit of this group and those around it.
    fn limit_bytes(&self) -> Option<u64> {
        let name = if self.v2 { "memory.max" } else { "memory.limit_in_bytes" };
        let around = self.folder.ancestors().take_while(|folder| folder.starts_with(&self.root));
        let limit = |folder: &Path| -> Option<u64> {
            fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
        };
        around.filter_map(limit).filter(|bytes| *bytes < UNLIMITED_BYTES).min()
    }
}

fn machine_kills() -> Option<u64> {
    field(&fs::read_to_string("/proc/vmstat").ok()?, "oom_kill")
}

/// The number behind a name, in lines of a name and a number.
fn field(text: &str, name: &str) -> Option<u64> {
    let number = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(number)
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_either_version_is_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("job/rank");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("memory.events"), "low 0\noom 2\noom_kill 3\n").unwrap();
        fs::write(folder.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("job/memory.max"), "150000000\n").unwrap();
        let none = Path::new("/none");
        let group = Group::parse("0::/job/rank\n", none, &[none, root.path()]).unwrap();
        assert_eq!((group.kills(), group.limit_bytes()), (Some(3), Some(150_000_000)));
        fs::write(folder.join("memory.oom_control"), "under_oom 0\noom_kill 7\n").unwrap();
        fs::write(folder.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        let text = "5:cpu:/x\n4:cpuset,memory:/job/rank (deleted)\n0::/\n";
        let group = Group::parse(text, root.path(), &[none]).unwrap();
        assert_eq!((group.kills(), group.limit_bytes()), (Some(7), None));
        assert_eq!(Group::parse("0::/\n", none, &[none]), None);
    }

    #[test]
    fn a_kill_is_for_memory_only_if_the_counter_grew() {
        let root = tempfile::tempdir().unwrap();
        let count = |kills| {
            fs::write(root.path().join("memory.events"), format!("oom_kill {kills}\n")).unwrap();
        };
        count(4);
        let group = Group { root: root.path().into(), folder: root.path().into(), v2: true };
        assert_eq!(group.kills(), Some(4));
        let own = Before::of(std::process::id() as libc::pid_t);
        assert_eq!(own.memory(std::process::id() as libc::pid_t), None);
    }

    #[test]
    fn who_has_used_all_its_processor_time_is_told_so() {
        let limits = |hard: &str| {
            format!("Limit  Soft Limit  Hard Limit  Units\nMax cpu time  1  {hard}  seconds\n")
        };
        let stat = |user: u64, system: u64| {
            format!("7 (a) b) Z 1 7 7 0 -1 4228 0 0 0 0 {user} {system} 0 0 20 0 1 0 5 0")
        };
        let told = used_up(&limits("3"), &stat(250, 50), 100).unwrap();
        assert!(told.contains("(3 s, ulimit -t)"), "{told}");
        assert_eq!(used_up(&limits("3"), &stat(200, 50), 100), None);
        assert_eq!(used_up(&limits("unlimited"), &stat(9000, 0), 100), None);
        assert_eq!(processor_time(std::process::id() as libc::pid_t), None);
    }

    #[test]
    fn limits_and_core_files_are_named() {
        let before = Before::default();
        let cause = |signal, dumped| of(&before, 1, Death::Signal(signal), Some(dumped));
        assert!(cause(libc::SIGXCPU, false).unwrap().contains("ulimit -t"));
        assert!(cause(libc::SIGSEGV, false).unwrap().contains("ulimit -c"));
        assert_eq!(cause(libc::SIGSEGV, true).unwrap(), "core dumped");
        assert_eq!(cause(libc::SIGTERM, false), None);
        assert_eq!(of(&before, 1, Death::Exit(1), None), None);
    }
}
