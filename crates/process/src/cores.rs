//! Processors of this machine: which there are, and which of them a rank gets.
//!
//! The choice is pure (`Machine`). Kept true: only processors are given that this process itself
//! may use; numbers are the kernel's.

use eyrie_control::{Bind, Slot};
use std::collections::BTreeMap;
use std::io;

/// Processors by number, ascending.
pub type Set = Vec<usize>;

/// Longest mask that a kernel may ask for: 64 Ki processors.
const MAX_MASK_BYTES: usize = 8192;
const SYSTEM: &str = "/sys/devices/system";

/// A core: the processors that share it, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    threads: Set,
    socket: u32,
    numa: u32,
}

/// The cores that may be used, in the order of their first processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    cores: Vec<Core>,
}

/// Processors that a process (0: this thread) may run on.
pub fn allowed(pid: libc::pid_t) -> io::Result<Set> {
    let mut mask = [0u8; MAX_MASK_BYTES];
    // SAFETY: the mask is live and as long as said.
    let bytes =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, pid, mask.len(), mask.as_mut_ptr()) };
    match usize::try_from(bytes) {
        Ok(bytes) => Ok(set(&mask[..bytes])),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Binds a process (0: this thread). Async-signal-safe.
pub fn bind(pid: libc::pid_t, mask: &[u8]) -> io::Result<()> {
    // SAFETY: the mask is live and as long as said.
    let r = unsafe { libc::syscall(libc::SYS_sched_setaffinity, pid, mask.len(), mask.as_ptr()) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set(mask: &[u8]) -> Set {
    (0..mask.len() * 8).filter(|i| mask[i / 8] >> (i % 8) & 1 != 0).collect()
}

/// The same as the kernel takes it.
pub fn mask(set: &[usize]) -> Vec<u8> {
    let most = set.iter().max().map_or(0, |most| most / 64 + 1);
    let mut mask = vec![0u8; most * 8];
    set.iter().for_each(|n| mask[n / 8] |= 1 << (n % 8));
    mask
}

/// As the kernel writes it: `0-3,8`.
pub fn list(set: &[usize]) -> String {
    let mut text = String::new();
    for row in set.chunk_by(|a, b| a + 1 == *b) {
        let comma = if text.is_empty() { "" } else { "," };
        match row {
            [one] => text.push_str(&format!("{comma}{one}")),
            [first, .., last] => text.push_str(&format!("{comma}{first}-{last}")),
            [] => {}
        }
    }
    text
}

/// Reads such a list; what is wrong in it is left out.
pub fn parse(list: &str) -> Set {
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| *n < MAX_MASK_BYTES * 8);
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(number(first)?..=number(last)?)
    };
    let mut set: Set = list.split(',').filter_map(range).flatten().collect();
    set.sort_unstable();
    set.dedup();
    set
}

impl Machine {
    /// What this process may use of this machine.
    pub fn here() -> io::Result<Machine> {
        let allowed = allowed(0)?;
        let mut numa = BTreeMap::new();
        for entry in std::fs::read_dir(format!("{SYSTEM}/node")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("node")?.parse::<u32>().ok());
            let list = std::fs::read_to_string(entry.path().join("cpulist"));
            if let (Some(number), Ok(list)) = (number, list) {
                numa.extend(parse(&list).into_iter().map(|cpu| (cpu, number)));
            }
        }
        let read = |cpu: usize, file: &str| {
            std::fs::read_to_string(format!("{SYSTEM}/cpu/cpu{cpu}/topology/{file}"))
        };
        Ok(Machine::of(&allowed, |cpu| {
            // Where the kernel does not tell, each is a core of its own.
            let threads = read(cpu, "thread_siblings_list").map_or(vec![cpu], |l| parse(&l));
            let socket = read(cpu, "physical_package_id").ok().and_then(|s| s.trim().parse().ok());
            Core { threads, socket: socket.unwrap_or(0), numa: *numa.get(&cpu).unwrap_or(&0) }
        }))
    }

    fn of(allowed: &[usize], core: impl Fn(usize) -> Core) -> Machine {
        let mut cores: Vec<Core> = Vec::new();
        for &cpu in allowed {
            if !cores.iter().any(|c| c.threads.contains(&cpu)) {
                let mut core = core(cpu);
                core.threads.retain(|t| allowed.contains(t));
                cores.push(core);
            }
        }
        Machine { cores }
    }

    /// All processors of these cores.
    pub fn all(&self) -> Set {
        union(&self.cores)
    }

    /// The cores of which none of these processors is.
    pub fn without(&self, taken: &[usize]) -> Machine {
        let free = |core: &&Core| !core.threads.iter().any(|cpu| taken.contains(cpu));
        Machine { cores: self.cores.iter().filter(free).cloned().collect() }
    }

    /// What a rank is bound to, of `ranks` on this machine; `taken`: what others are bound to.
    pub fn choose(&self, bind: Bind, ranks: usize, taken: &[Set]) -> Option<Set> {
        let cores = self.cores.len();
        let bind = match bind {
            Bind::Auto | Bind::Own if ranks == cores => Bind::Core,
            Bind::Auto | Bind::Own => Bind::Numa,
            bind => bind,
        };
        let places = match bind {
            // Two on one core would be worse off than where the kernel puts them.
            Bind::Thread if ranks > self.all().len() => return None,
            Bind::Thread => self.all().into_iter().map(|cpu| vec![cpu]).collect(),
            _ if ranks > cores => return None,
            Bind::None | Bind::Auto | Bind::Own => return None,
            Bind::Core => self.cores.iter().map(|c| c.threads.clone()).collect(),
            Bind::Numa => self.domains(|c| c.numa),
            Bind::Socket => self.domains(|c| c.socket),
        };
        let load = |place: &Set| {
            let there = taken.iter().filter(|t| t.iter().any(|cpu| place.contains(cpu))).count();
            (there * self.all().len()) / place.len().max(1)
        };
        places.into_iter().min_by_key(load)
    }

    /// What the ranks of a machine are bound to, when all of them begin on it.
    pub fn places(&self, bind: Bind, ranks: usize) -> Vec<Option<Set>> {
        let mut taken = Vec::new();
        let mut one = |_| {
            let place = self.choose(bind, ranks, &taken);
            taken.extend(place.clone());
            place
        };
        (0..ranks).map(&mut one).collect()
    }

    fn domains(&self, of: impl Fn(&Core) -> u32) -> Vec<Set> {
        let mut domains: BTreeMap<u32, Vec<Core>> = BTreeMap::new();
        for core in &self.cores {
            domains.entry(of(core)).or_default().push(core.clone());
        }
        domains.values().map(|cores| union(cores)).collect()
    }

    /// The processors that are named; else why there are none.
    pub fn named(&self, slots: &[Slot]) -> Result<Set, String> {
        let mut found = Vec::new();
        for slot in slots {
            let there: Vec<Core> = match slot.socket {
                None => self.cores.clone(),
                Some(n) => {
                    let mut sockets: Vec<u32> = self.cores.iter().map(|c| c.socket).collect();
                    sockets.sort_unstable();
                    sockets.dedup();
                    let count = sockets.len();
                    let socket = sockets.get(n as usize).ok_or_else(|| {
                        format!("slot={slot}: this node may use {count} sockets, from 0 on")
                    })?;
                    self.cores.iter().filter(|c| c.socket == *socket).cloned().collect()
                }
            };
            let last = if slot.last == u32::MAX { there.len() } else { slot.last as usize + 1 };
            let cores = there.get(slot.first as usize..last).filter(|c| !c.is_empty());
            let count = there.len();
            let cores = cores.ok_or_else(|| {
                format!("slot={slot}: there are {count} cores that this node may use, from 0 on")
            })?;
            found.extend(union(cores));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

fn union(cores: &[Core]) -> Set {
    let mut all: Set = cores.iter().flat_map(|c| c.threads.iter().copied()).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of four cores with two threads each; threads of a core are 8 apart.
    fn machine(allowed: &str) -> Machine {
        Machine::of(&parse(allowed), |cpu| {
            let core = cpu % 8;
            let socket = core as u32 / 4;
            Core { threads: vec![core, core + 8], socket, numa: socket }
        })
    }

    fn places(machine: &Machine, bind: Bind, ranks: usize) -> String {
        let text = |p: Option<Set>| p.map_or("-".into(), |p| list(&p));
        machine.places(bind, ranks).into_iter().map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lists_are_read_and_written() {
        for text in ["", "0", "0-3,8", "1,3,5-6"] {
            assert_eq!(list(&parse(text)), text);
        }
        assert_eq!(parse("x,2-,3-1,7,-1,99999999999"), [7]);
        assert_eq!(set(&mask(&[0, 9, 64])), [0, 9, 64]);
        assert_eq!(mask(&[0, 9, 64]).len(), 16);
        let own = allowed(0).unwrap();
        assert!(!own.is_empty());
        bind(0, &mask(&own)).unwrap();
        assert_eq!(Machine::here().unwrap().all(), own);
    }

    #[test]
    fn ranks_are_spread_and_never_crowded() {
        let m = machine("0-15");
        assert_eq!(places(&m, Bind::Core, 3), "0,8 1,9 2,10");
        assert_eq!(places(&m, Bind::Thread, 3), "0 1 2");
        assert_eq!(places(&m, Bind::Socket, 3), "0-3,8-11 4-7,12-15 0-3,8-11");
        assert_eq!(places(&m, Bind::None, 2), "- -");
        assert_eq!(places(&m, Bind::Core, 9), "- - - - - - - - -");
        assert_eq!(places(&m, Bind::Thread, 9), "0 1 2 3 4 5 6 7 8");
        assert_eq!(places(&m, Bind::Auto, 2), "0-3,8-11 4-7,12-15");
        assert_eq!(places(&machine("0,4"), Bind::Auto, 2), "0 4");
        assert_eq!(places(&machine("0,4"), Bind::Auto, 3), "- - -");
        assert_eq!(places(&Machine::default(), Bind::Auto, 1), "-");
    }

    #[test]
    fn who_comes_later_gets_what_is_least_used() {
        let m = machine("0-15");
        let taken = [vec![0, 8], vec![2, 10]];
        assert_eq!(m.choose(Bind::Core, 3, &taken), Some(vec![1, 9]));
        assert_eq!(m.choose(Bind::Numa, 3, &taken), Some(parse("4-7,12-15")));
    }

    #[test]
    fn cores_of_other_jobs_are_not_there() {
        let m = machine("0-15").without(&[9, 2]);
        assert_eq!(places(&m, Bind::Core, 2), "0,8 3,11");
        assert_eq!(places(&m, Bind::Own, 6), "0,8 3,11 4,12 5,13 6,14 7,15");
        assert_eq!(places(&m, Bind::Own, 7), "- - - - - - -");
        assert_eq!(places(&m, Bind::Numa, 1), "0,3,8,11");
    }

    #[test]
    fn slots_are_cores_that_may_be_used() {
        let slot = |socket: Option<u32>, first, last| Slot { socket, first, last };
        let m = machine("2-6,10-14");
        assert_eq!(m.named(&[slot(None, 0, 1)]).unwrap(), parse("2-3,10-11"));
        assert_eq!(m.named(&[slot(Some(1), 0, 0), slot(None, 0, 0)]).unwrap(), parse("2,4,10,12"));
        assert_eq!(m.named(&[slot(Some(0), 0, u32::MAX)]).unwrap(), parse("2-3,10-11"));
        let wrong = |s| m.named(&[s]).unwrap_err();
        assert!(wrong(slot(None, 4, 5)).contains("slot=4-5: there are 5 cores"));
        assert!(wrong(slot(Some(2), 0, 0)).contains("slot=2:0: this node may use 2 sockets"));
        assert!(wrong(slot(None, 3, 1)).contains("3-1"));
    }
}
