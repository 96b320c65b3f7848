//! What memory a node has for more ranks, and what its ranks have.
//!
//! Kept true: what is not known limits nobody.

use eyrie_image::children_of;
use std::path::Path;

/// The most that the ranks of a node are to have, in MiB, where somebody wants that.
const LIMIT: &str = "EYRIE_NODE_MEMORY";
const PAGE_BYTES: u64 = 4096;
/// Of the descendants of a rank so many are looked at.
const MAX_BELOW: usize = 64;

/// Bytes that more ranks could have on this machine, by the kernel and by the control groups.
pub fn available() -> Option<u64> {
    of_machine().into_iter().chain(of_groups()).min()
}

/// What is left of the limit for ranks that have so many bytes.
pub fn left_to_ranks(have: u64) -> Option<u64> {
    let limit: u64 = std::env::var(LIMIT).ok()?.parse().ok()?;
    Some(limit.saturating_mul(1 << 20).saturating_sub(have))
}

fn of_machine() -> Option<u64> {
    eyrie_image::meminfo("MemAvailable")
}

/// What the control groups (v2) leave that this process is in.
fn of_groups() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let group = root.join(path);
    group.ancestors().take_while(|p| p.starts_with(root)).filter_map(of_group).min()
}

fn of_group(group: &Path) -> Option<u64> {
    let read = |name| std::fs::read_to_string(group.join(name)).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    Some(limit.saturating_sub(used.saturating_sub(given_up(&stat))))
}

/// What of a group's memory are contents of files, which the kernel gives up when there is need.
fn given_up(stat: &str) -> u64 {
    let of = |name: &str| {
        let word = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        word.and_then(|word| word.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    of("inactive_file") + of("active_file")
}

/// Bytes of memory of their own that a process and its descendants have.
pub fn resident(pid: libc::pid_t) -> u64 {
    let (mut all, mut next) = (vec![pid], 0);
    while next < all.len() && all.len() < MAX_BELOW {
        all.extend(children_of(&all[next].to_string()));
        next += 1;
    }
    all.into_iter().filter_map(own_pages).sum::<u64>() * PAGE_BYTES
}

fn own_pages(pid: libc::pid_t) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut words = text.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
    let (resident, shared) = (words.next()?, words.next()?);
    Some(resident.saturating_sub(shared))
}

/// Whether the logs of jobs lie in huge pages on this machine; else why not.
pub fn huge_logs() -> Result<(), String> {
    eyrie_ledger::memory::huge("eyrie-info").map(drop).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_memory_that_it_has_written_to() {
        let before = resident(std::process::id() as i32);
        // Much more than other tests of this process give back meanwhile.
        let block = vec![7u8; 256 << 20];
        let after = resident(std::process::id() as i32);
        assert!(after >= before + (128 << 20), "{before} {after} {}", block[block.len() / 2]);
        assert_eq!(resident(-1), 0);
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        assert!(available().is_some_and(|bytes| bytes > 0));
        let stat = "anon 5\nfile 9\ninactive_file 100\nactive_file 20\n";
        assert_eq!(given_up(stat), 120);
        assert_eq!(given_up(""), 0);
    }
}
