//! Which processors of this machine are bound to, and by which jobs: no two jobs bind their ranks
//! to the same one.
//!
//! Whoever binds to a processor has a socket with its number in the abstract namespace, which the
//! kernel shows to everybody (`/proc/net/unix`), whoever they are, and which goes with the process.
//! Kept true: a claim is made before it is looked for those of others, so that of two at the same
//! time at least one gives way. What is in another network namespace is not seen.

use crate::cores::Set;
use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use xxhash_rust::xxh3::xxh3_64;

const PREFIX: &str = "eyrie-core/";
const TABLE: &str = "/proc/thread-self/net/unix";

/// What this process has claimed for a job.
pub struct CoreClaims {
    job: String,
    held: BTreeMap<usize, UnixDatagram>,
}

impl CoreClaims {
    pub fn new(job: &str) -> CoreClaims {
        CoreClaims { job: format!("{:016x}", xxh3_64(job.as_bytes())), held: BTreeMap::new() }
    }

    /// Processors that other jobs' ranks are bound to.
    pub fn others(&self) -> io::Result<Set> {
        Ok(claimed(&std::fs::read_to_string(TABLE)?, &self.job))
    }

    /// Claims all of these; false: another job has one of them, and none is claimed but what was.
    pub fn take(&mut self, wanted: &[usize]) -> io::Result<bool> {
        let mut new = BTreeMap::new();
        for &cpu in wanted.iter().filter(|cpu| !self.held.contains_key(cpu)) {
            let name = format!("{PREFIX}{cpu}/{}/{}", self.job, std::process::id());
            let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
            new.insert(cpu, socket);
        }
        let others = self.others()?;
        let free = wanted.iter().all(|cpu| !others.contains(cpu));
        if free {
            self.held.append(&mut new);
        }
        Ok(free)
    }

    /// Gives up all but these.
    pub fn keep(&mut self, used: &[usize]) {
        self.held.retain(|cpu, _| used.contains(cpu));
    }
}

/// Processors that others than `job` have, by the kernel's table of sockets.
fn claimed(table: &str, job: &str) -> Set {
    let claim = |line: &str| {
        let name = line.split_ascii_whitespace().nth(7)?.strip_prefix('@')?;
        let mut parts = name.strip_prefix(PREFIX)?.split('/');
        let cpu = parts.next()?.parse::<usize>().ok()?;
        (parts.next()? != job).then_some(cpu)
    };
    let mut all: Set = table.lines().filter_map(claim).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            000: 00000002 00000000 00000000 0002 01 19 @eyrie-core/3/aa/17\n\
            000: 00000002 00000000 00000000 0002 01 20 @eyrie-core/1/bb/18\n\
            000: 00000002 00000000 00000000 0002 01 21 @eyrie-core/1/bb/19\n\
            000: 00000002 00000000 00000000 0002 01 22 @eyrie-core/x/bb\n\
            000: 00000002 00000000 00000000 0002 01 23 @eyrie-core/4\n\
            000: 00000002 00000000 00000000 0002 01 24 /eyrie-core/5/bb/18\n\
            000: 00000002 00000000 00000000 0002 01 25\n";
        assert_eq!(claimed(table, "aa"), [1]);
        assert_eq!(claimed(table, "bb"), [3]);
        assert_eq!(claimed(table, ""), [1, 3]);
    }

    #[test]
    fn two_jobs_do_not_claim_the_same() {
        // Numbers that no machine has, so that jobs here are not disturbed.
        let base = 1_000_000 + std::process::id() as usize * 8;
        let mut first = CoreClaims::new("first");
        let mut second = CoreClaims::new("second");
        assert!(first.take(&[base, base + 1]).unwrap());
        assert!(!second.take(&[base + 1, base + 2]).unwrap());
        assert!(second.take(&[base + 2]).unwrap(), "nothing was left of the attempt");
        assert!(!first.take(&[base + 2]).unwrap());
        assert!(first.take(&[base, base + 1]).unwrap(), "one's own may be taken again");
        let others = second.others().unwrap();
        assert!(others.contains(&base) && !others.contains(&(base + 2)), "{others:?}");
        first.keep(&[base]);
        assert!(second.take(&[base + 1]).unwrap());
        drop(first);
        assert!(second.take(&[base]).unwrap());
    }
}
