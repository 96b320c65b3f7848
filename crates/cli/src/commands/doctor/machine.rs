//! The kernel, limits and memory of this machine.

use crate::commands::doctor::finding::Finding;
use eyrie_image::{Machine, Offer};
use eyrie_terminal::units;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Descriptors that a job of some nodes takes.
const DESCRIPTORS: u64 = 1024;
/// Processes that a user has besides.
const PROCESSES: u64 = 512;
/// Programs that share memory by themselves want more.
const SHM_BYTES: u64 = 256 << 20;

const HUGE_LOGS: &str = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled (as root)";
const HUGE_PAGES: &str = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)";
const NEWER: &str = "run Linux 6.7 or later";
const CONTAINER: &str = "in a container: give it --cap-add SYS_PTRACE, or another seccomp profile";

/// What is looked at of what `eyrie info` tells, and what to type where it is lacking. The rest
/// changes nothing for jobs.
const OFFERS: [(&str, &str); 7] = [
    ("pagemap scan", NEWER),
    ("write notes", NEWER),
    ("descriptor fetch", CONTAINER),
    ("full userfaultfd", "sysctl -w vm.unprivileged_userfaultfd=1 (as root)"),
    ("kcmp", CONTAINER),
    ("transparent huge pages", HUGE_PAGES),
    ("huge pages of shared memory", HUGE_LOGS),
];

pub fn look(machine: &Machine) -> Vec<Finding> {
    let mut all: Vec<Finding> = machine.offers.iter().filter_map(offer).collect();
    all.push(tracing_children());
    all.push(numbers(machine));
    all.push(overcommit());
    all.extend(limits());
    all.push(shared_memory());
    all.push(logins());
    all
}

fn offer(offer: &Offer) -> Option<Finding> {
    let Offer { name, here, detail, usage, without, .. } = offer;
    if *name == "memfd" && !here {
        let text = format!("no job can run: memory for messages is made with it ({detail})");
        return Some(Finding::stops(name, text, CONTAINER));
    }
    let (_, remedy) = OFFERS.iter().find(|(known, _)| known == name)?;
    Some(match here {
        true => Finding::fine(name, format!("there, for {usage}")),
        false => Finding::costs(name, format!("{detail}: {without}"), *remedy),
    })
}

/// Traces a process that was started for that.
fn tracing_children() -> Finding {
    let about = "tracing";
    let traced = || -> io::Result<()> {
        let mut command = Command::new("sleep");
        let mut child = command.arg("60").stdin(Stdio::null()).spawn()?;
        let pid = child.id() as libc::pid_t;
        // SAFETY: plain system calls on a child of ours; no memory is passed.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
        let error = io::Error::last_os_error();
        child.kill()?;
        child.wait()?;
        if seized == 0 { Ok(()) } else { Err(error) }
    };
    match traced() {
        Ok(()) => Finding::fine(about, "processes can be checkpointed"),
        Err(error) => Finding::stops(
            about,
            format!("no process can be checkpointed ({error}): only eyrie run --ft none works"),
            format!("sysctl -w kernel.yama.ptrace_scope=1 (as root); {CONTAINER}"),
        ),
    }
}

/// Whether ranks with child processes and threads come back.
fn numbers(machine: &Machine) -> Finding {
    let about = "process numbers";
    let chosen = machine.offers.iter().any(|o| o.name == "chosen numbers" && o.here);
    match eyrie_image::may_have_own_pids() {
        _ if chosen => Finding::fine(about, "a restored process has the number that it had"),
        Ok(()) => Finding::fine(about, "given back in a namespace of the job's own"),
        Err(why) => Finding::costs(
            about,
            format!("ranks with child processes are not checkpointed: {why}"),
            "setcap cap_checkpoint_restore+ep on bin/eyrie and libexec/eyrie-restorer (as root), \
             or let users have namespaces: docs/guides/ordinary-users.md",
        ),
    }
}

fn overcommit() -> Finding {
    let about = "overcommit";
    match read("/proc/sys/vm/overcommit_memory").as_str() {
        "2" => Finding::costs(
            about,
            "memory is promised strictly (vm.overcommit_memory = 2): a rank that uses half of it \
             cannot be frozen as a twin, and stands still for longer",
            "sysctl -w vm.overcommit_memory=0 (as root)",
        ),
        mode => Finding::fine(about, format!("vm.overcommit_memory = {mode}")),
    }
}

fn limits() -> Vec<Finding> {
    let least = |name: &str, kind, flag: &str, want: u64, why: &str| {
        let (soft, hard) = limit(kind);
        match soft >= want {
            true => Finding::fine(name, format!("limit {}", shown(soft))),
            false => {
                let text = format!("limit {}: {why}", shown(soft));
                let root = if hard >= want { "" } else { " (more than this login may have)" };
                let want = if want == u64::MAX { "unlimited".into() } else { want.to_string() };
                Finding::costs(name, text, format!("ulimit -{flag} {want}{root}"))
            }
        }
    };
    let mut all = vec![
        least("open files", libc::RLIMIT_NOFILE, "n", DESCRIPTORS, {
            "jobs with many ranks or nodes end with 'too many open files'"
        }),
        least("processes", libc::RLIMIT_NPROC, "u", PROCESSES, {
            "ranks and their threads count, and restores start others"
        }),
        least("file size", libc::RLIMIT_FSIZE, "f", u64::MAX, {
            "images of ranks that are larger cannot be written"
        }),
        least("address space", libc::RLIMIT_AS, "v", u64::MAX, {
            "logs and restores take addresses beside the program's"
        }),
    ];
    let fabric = Path::new("/sys/class/infiniband");
    let has_fabric = std::fs::read_dir(fabric).is_ok_and(|mut list| list.next().is_some());
    all.push(match has_fabric {
        true => least("locked memory", libc::RLIMIT_MEMLOCK, "l", u64::MAX, {
            "--transport libfabric with verbs locks its buffers"
        }),
        false => {
            let text = format!("limit {}; nothing needs it", shown(limit(libc::RLIMIT_MEMLOCK).0));
            Finding::fine("locked memory", text)
        }
    });
    let text = match limit(libc::RLIMIT_CORE).0 {
        0 => String::from("none (eyrie image extract makes one of an image)"),
        most => format!("limit {}", shown(most)),
    };
    all.push(Finding::fine("core files", text));
    all
}

fn shown(limit: u64) -> String {
    if limit == u64::MAX { "none".into() } else { limit.to_string() }
}

fn limit(kind: libc::__rlimit_resource_t) -> (u64, u64) {
    // SAFETY: plain data for which zero is valid, written to a live place.
    unsafe {
        let mut found: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(kind, &mut found);
        (found.rlim_cur, found.rlim_max)
    }
}

fn shared_memory() -> Finding {
    let (about, path) = ("/dev/shm", Path::new("/dev/shm"));
    match crate::file_system::space(path) {
        None => Finding::costs(
            about,
            "is not there: programs that share memory by themselves fail (Eyrie does without)",
            "mount -t tmpfs tmpfs /dev/shm (as root)",
        ),
        Some(space) if space.all < SHM_BYTES => Finding::costs(
            about,
            format!(
                "has {} only: programs that share memory by themselves, as PyTorch, die of SIGBUS \
                 (Eyrie does without)",
                units::bytes(space.all)
            ),
            "mount -o remount,size=50% /dev/shm (as root); a container: --shm-size=1g",
        ),
        Some(space) => Finding::fine(about, units::bytes(space.all)),
    }
}

/// Whether systemd ends what a user leaves running.
fn logins() -> Finding {
    let about = "logging out";
    let kills = Path::new("/run/systemd/system").is_dir() && kills_user_processes(&logind());
    let user = std::env::var("USER").unwrap_or_default();
    let lingers = !user.is_empty() && Path::new("/var/lib/systemd/linger").join(&user).exists();
    match kills && !lingers {
        true => Finding::costs(
            about,
            "ends jobs that run in the background (KillUserProcesses=yes in logind.conf)",
            "loginctl enable-linger",
        ),
        false => Finding::fine(about, "jobs in the background go on"),
    }
}

/// The files of systemd-logind, later ones going before.
fn logind() -> String {
    let mut files = vec![Path::new("/etc/systemd/logind.conf").to_path_buf()];
    for folder in ["/usr/lib/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"] {
        let list = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut more: Vec<_> = list.map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    files.iter().map(|path| read(&path.display().to_string()) + "\n").collect()
}

fn kills_user_processes(text: &str) -> bool {
    let mut lines = text.lines().filter_map(|l| l.trim().strip_prefix("KillUserProcesses="));
    lines.next_back().is_some_and(|word| ["yes", "true", "on", "1"].contains(&word.trim()))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::Level;
    use crate::commands::doctor::finding::exit_code;

    #[test]
    fn the_last_word_of_logind_counts() {
        assert!(!kills_user_processes("#KillUserProcesses=yes\n"));
        assert!(kills_user_processes("[Login]\nKillUserProcesses=no\nKillUserProcesses=yes"));
        assert!(!kills_user_processes("KillUserProcesses=yes\n  KillUserProcesses=no"));
    }

    #[test]
    fn what_is_lacking_is_told_with_what_to_type() {
        let lacks = |name| offer(&Offer::new(name, Err("no".into()), "x", "slow")).unwrap();
        assert_eq!(lacks("memfd").level, Level::Stops);
        assert_eq!(lacks("write notes").level, Level::Costs);
        assert!(lacks("kcmp").remedy.is_some() && lacks("kcmp").text.contains("slow"));
        assert_eq!(offer(&Offer::new("AMX", Err("no".into()), "x", "y")), None);
        let fine = offer(&Offer::new("kcmp", Ok(String::new()), "x", "y")).unwrap();
        assert_eq!(exit_code(std::slice::from_ref(&fine)), 0);
        assert_eq!(exit_code(&[fine.clone(), lacks("kcmp")]), 1);
        assert_eq!(exit_code(&[lacks("memfd"), fine]), 2);
        let here = eyrie_image::machine();
        let names: Vec<&str> = here.offers.iter().map(|o| o.name).collect();
        // That one is added by who asks.
        let known = OFFERS.iter().filter(|(name, _)| *name != "huge pages of shared memory");
        known.for_each(|(name, _)| assert!(names.contains(name), "{name}"));
    }
}
