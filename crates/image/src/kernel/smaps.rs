//! What the kernel tells of a mapping only after a walk through all of its page tables: advice,
//! protection key, size of pages. That walk takes as long as copying a part of the memory, so a
//! process need not stand still for it, nor do its pages wait for it on their way to the image.
//!
//! At a freeze the list of mappings is read without it. Where each was there when flags were read
//! last, those serve to find what is to be stored. They are read again meanwhile, of a twin, or of
//! the process itself, which may run again by then: from the same memory whatever becomes of its
//! number. What is found then is what the image says:
//! a flag that was changed since the last time is right, and one that is changed after the freeze
//! is changed again by the restored process. Of a mapping that is gone, or in pieces that differ,
//! the older flags stay: the restored process is about to do the same to it.

use crate::error::CaptureError;
use crate::kernel::background::Background;
use crate::kernel::procfs::{self, Mapping};
use std::fs::File;

/// Mappings of a frozen process, and their flags as they are read again if these were read earlier.
pub(crate) struct Pending {
    pub maps: Vec<Mapping>,
    later: Later,
}

type Answer = Result<Vec<Mapping>, CaptureError>;

enum Later {
    /// They are those of the freeze.
    Not,
    /// To be read here.
    From(File),
    Reading(Background<Answer>),
}

/// Mappings whose flags are those of the freeze.
impl From<Vec<Mapping>> for Pending {
    fn from(maps: Vec<Mapping>) -> Pending {
        Pending { maps, later: Later::Not }
    }
}

impl Pending {
    /// The mappings `now` of a process that stands still, if all flags that matter are `known`.
    pub fn new(pid: libc::pid_t, now: &[Mapping], known: &[Mapping]) -> Option<Pending> {
        let maps = now.iter().map(|m| with_known(m, known)).collect::<Option<Vec<_>>>()?;
        Some(Pending { maps, later: Later::From(procfs::open_smaps(pid).ok()?) })
    }

    /// Whether all flags of the mappings `now` that matter are `known`.
    pub fn is_known(now: &[Mapping], known: &[Mapping]) -> bool {
        now.iter().all(|m| with_known(m, known).is_some())
    }

    /// Begins to read the flags again, if that is to be done and was not begun yet.
    pub fn read_meanwhile(&mut self) {
        self.later = match std::mem::replace(&mut self.later, Later::Not) {
            Later::From(smaps) => Later::Reading(Background::begin(move || read(&smaps))),
            other => other,
        };
    }

    /// The mappings with the flags of now, and whether these were read again.
    pub fn settle(mut self) -> Result<(Vec<Mapping>, bool), CaptureError> {
        self.read_meanwhile();
        let mut maps = self.maps;
        let Later::Reading(reading) = self.later else { return Ok((maps, false)) };
        let later = reading.end()?;
        for m in &mut maps {
            if let Some(found) = found(m, &later) {
                (m.pkey, m.page_shift) = (found.pkey, found.page_shift);
                m.vm_flags.clone_from(&found.vm_flags);
                forget_tracking(m);
            }
        }
        Ok((maps, true))
    }
}

/// The mappings with the flags of now. That the process runs again is no harm; if it has ended
/// nothing more can be told.
fn read(smaps: &File) -> Answer {
    let later = procfs::parse_maps(&procfs::read_smaps(smaps)?)?;
    if later.is_empty() { Err(CaptureError::Gone) } else { Ok(later) }
}

/// That we note its writes is not the program's affair. One that has a userfaultfd itself is
/// refused for that descriptor.
pub(crate) fn forget_tracking(m: &mut Mapping) {
    m.vm_flags.retain(|f| f != b"uw");
}

/// The mapping with its flags as they were known, if it was there.
fn with_known(m: &Mapping, known: &[Mapping]) -> Option<Mapping> {
    if m.is_special() || m.is_vsyscall() {
        return Some(m.clone());
    }
    let i = known.binary_search_by_key(&m.start, |k| k.start).ok()?;
    let Mapping { vm_flags, pkey, page_shift, .. } = known[i].clone();
    let same = Mapping { vm_flags, pkey, page_shift, ..m.clone() };
    (same == known[i]).then_some(same)
}

/// One of the pieces that are there `later` of what was mapped, if all have the same flags.
fn found<'a>(m: &Mapping, later: &'a [Mapping]) -> Option<&'a Mapping> {
    let same_file = |l: &Mapping| {
        (l.shared, l.dev, l.ino, &l.path) == (m.shared, m.dev, m.ino, &m.path)
            && (m.ino == 0 || l.start.wrapping_sub(l.offset) == m.start.wrapping_sub(m.offset))
    };
    // They are in order.
    let from = later.partition_point(|l| l.end <= m.start);
    let there = later[from..].iter().take_while(|l| l.start < m.end);
    let mut pieces = there.filter(|l| same_file(l));
    let first = pieces.next()?;
    let told = |l: &Mapping| (l.pkey, l.page_shift, l.vm_flags.clone());
    pieces.all(|l| told(l) == told(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(text: &str) -> Vec<Mapping> {
        procfs::parse_maps(text.as_bytes()).unwrap()
    }

    fn anon(range: &str, flags: &str) -> String {
        format!("{range} rw-p 00000000 00:00 0\nVmFlags: rd wr {flags}\n")
    }

    #[test]
    fn flags_are_known_of_what_was_there() {
        let known = maps(&(anon("1000-3000", "dc") + &anon("5000-6000", "")));
        let now = maps("1000-3000 rw-p 00000000 00:00 0\n");
        assert!(with_known(&now[0], &known).unwrap().has(b"dc"));
        for other in ["1000-4000 rw-p 00000000 00:00 0\n", "1000-3000 r--p 00000000 00:00 0\n"] {
            assert_eq!(with_known(&maps(other)[0], &known), None);
        }
        let special = maps("7000-8000 r-xp 00000000 00:00 0 [vdso]\n");
        assert!(with_known(&special[0], &known).is_some());
    }

    #[test]
    fn what_is_there_later_tells() {
        let m = &maps(&anon("2000-4000", ""))[0];
        let flags = |later: &str| found(m, &maps(later)).map(|l| l.has(b"dc"));
        // The same, grown, a piece of it, something else in its place, nothing.
        assert_eq!(flags(&anon("2000-4000", "dc")), Some(true));
        assert_eq!(flags(&anon("1000-9000", "dc")), Some(true));
        assert_eq!(flags(&anon("3000-4000", "dc")), Some(true));
        assert_eq!(flags("2000-4000 rw-p 00000000 08:01 77 /x\nVmFlags: rd dc\n"), None);
        assert_eq!(flags(&anon("4000-5000", "dc")), None);
        // In pieces.
        assert_eq!(flags(&(anon("2000-3000", "dc") + &anon("3000-4000", "dc"))), Some(true));
        assert_eq!(flags(&(anon("2000-3000", "dc") + &anon("3000-4000", ""))), None);
    }

    #[test]
    fn many_mappings_are_found_in_no_time() {
        let all: String = (1..65_000u64)
            .map(|i| anon(&format!("{:x}-{:x}", i << 13, (i << 13) + 4096), "dc"))
            .collect();
        let all = maps(&all);
        let begun = std::time::Instant::now();
        assert!(all.iter().all(|m| found(m, &all) == Some(m)));
        // Each with each are four billion comparisons.
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_file_is_the_same_at_the_same_offset() {
        let m = &maps("2000-4000 r--p 00001000 08:01 77 /x\n")[0];
        let is = |later: &str| found(m, &maps(later)).is_some();
        assert!(is("3000-4000 r--p 00002000 08:01 77 /x\n"));
        assert!(!is("3000-4000 r--p 00003000 08:01 77 /x\n"));
    }

    #[test]
    fn advice_that_is_given_after_the_freeze_is_found() {
        let (bytes, guard) = (1 << 20, 1 << 16);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // Between pages that cannot be used: else it would be one mapping with memory of others.
        // SAFETY: new memory of our own, which nobody else knows.
        let at = unsafe {
            let all = bytes + 2 * guard;
            let all = libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(all, libc::MAP_FAILED);
            let at = all.byte_add(guard);
            assert_eq!(libc::mprotect(at, bytes, prot), 0);
            at
        };
        let pid = libc::pid_t::try_from(std::process::id()).unwrap();
        let here = |maps: &[Mapping]| {
            maps.iter().find(|m| m.start <= at as u64 && (at as u64) < m.end).cloned().unwrap()
        };
        let known = [here(&procfs::parse_maps(&procfs::smaps(pid).unwrap()).unwrap())];
        let now = Mapping { vm_flags: vec![], ..known[0].clone() };
        let pending = Pending::new(pid, &[now], &known).unwrap();
        assert!(!pending.maps[0].has(b"dc"));
        assert_eq!(known[0].end - known[0].start, bytes as u64);
        // SAFETY: advice about what a fork inherits; nothing is read or written.
        assert_eq!(unsafe { libc::madvise(at, bytes, libc::MADV_DONTFORK) }, 0);
        let (maps, read) = pending.settle().unwrap();
        assert!(read && maps[0].has(b"dc"));
    }
}
