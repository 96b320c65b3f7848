//! The vdso of another kernel.
//!
//! libc keeps pointers into the vdso it found at its start. Where the kernel that restores has the
//! same one, it is put where the old one was. Otherwise the old one's bytes go back to their place
//! as ordinary memory, with a jump to the new kernel's function, or a plain system call, at the
//! start of each function; the new one lies elsewhere. What the old code keeps its data in (vvar)
//! is not there any more, so no thread may be within it, except in a system call: what follows
//! there only returns.

use crate::PAGE_BYTES;
use crate::error::RestoreError;
use crate::kernel::memory;
use crate::kernel::procfs::Mapping;
use crate::kernel::restorer_area::{Area, used};
use eyrie_image_format::bytes::registers;
use eyrie_image_format::state::{State, Thread};

/// Set to 1: takes any kernel's for another one. For tests.
const FORCE: &str = "EYRIE_IMAGE_FOREIGN_VDSO";
/// `jmp` with a distance of 32 bits.
const NEAR_JUMP_BYTES: usize = 5;
const SYMBOL_BYTES: usize = 24;
const SECTION_BYTES: usize = 64;
const SHT_DYNSYM: u64 = 11;

/// What each function is without a vdso: its system call.
const CALLS: [(&[u8], libc::c_long); 6] = [
    (b"clock_gettime", libc::SYS_clock_gettime),
    (b"gettimeofday", libc::SYS_gettimeofday),
    (b"clock_getres", libc::SYS_clock_getres),
    (b"time", libc::SYS_time),
    (b"getcpu", libc::SYS_getcpu),
    (b"getrandom", libc::SYS_getrandom),
];

/// How the process gets its vdso back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vdso {
    /// The kernel's own, at the old place.
    Same,
    /// The old one as memory, leading to the kernel's own at `place` and beyond.
    Foreign {
        /// Where the first of the kernel's special mappings goes.
        place: u64,
        /// Where the old bytes lay.
        start: u64,
        /// The old bytes with jumps.
        bytes: Vec<u8>,
    },
}

impl Vdso {
    /// Decides for a child with the mappings `own` whose vdso holds `here`.
    pub fn choose(
        state: &State,
        own: &[Mapping],
        here: &[u8],
        area: Area,
    ) -> Result<Vdso, RestoreError> {
        let specials: Vec<&Mapping> = own.iter().filter(|m| m.is_special()).collect();
        let forced = std::env::var_os(FORCE).is_some_and(|v| v == "1");
        let alike = specials.len() == state.specials.len()
            && specials.iter().zip(&state.specials).all(|(here, there)| {
                here.path == there.name && here.end - here.start == there.end - there.start
            });
        if alike && here == state.vdso && !forced {
            return Ok(Vdso::Same);
        }
        let machine = |what: &str| RestoreError::Machine(what.into());
        let (Some(first), Some(last)) = (specials.first(), specials.last()) else {
            return Err(machine("its kernel has no vdso"));
        };
        let old = state.specials.iter().find(|s| s.name == b"[vdso]");
        let new = specials.iter().find(|m| m.path == b"[vdso]");
        let (Some(old), Some(new)) = (old, new) else {
            return Err(machine("its kernel has no vdso"));
        };
        let mut taken: Vec<(u64, u64)> = used(state).chain([(area.base, area.end())]).collect();
        taken.sort_unstable();
        let place = below(&taken, last.end - first.start, old.start)
            .ok_or_else(|| machine("no room is left for its kernel's vdso"))?;
        let new_start = place + (new.start - first.start);
        let bytes = redirect(&state.vdso, old.start, here, new_start)
            .ok_or_else(|| machine("its kernel's vdso cannot be read"))?;
        refuse_inside(state, old.start, &bytes)?;
        Ok(Vdso::Foreign { place, start: old.start, bytes })
    }
}

/// Writes the old bytes to where they were in `pid`.
pub fn fill(vdso: &Vdso, pid: libc::pid_t) -> Result<(), RestoreError> {
    let Vdso::Foreign { start, bytes, .. } = vdso else { return Ok(()) };
    memory::write_exact(pid, *start, bytes).map_err(|e| RestoreError::Died(e.to_string()))
}

/// A thread that was stopped in the old vdso would go on in code whose data are gone.
fn refuse_inside(state: &State, start: u64, bytes: &[u8]) -> Result<(), RestoreError> {
    for Thread { tid, regs, .. } in &state.threads {
        let regs = registers::words_to_regs(regs);
        let at = regs.rip.wrapping_sub(start);
        let returning = regs.orig_rax as i64 >= 0
            // The system call must still be there: it may be made again.
            && bytes.get((at as usize).wrapping_sub(2)..at as usize) == Some(&[0x0f, 0x05]);
        if at < bytes.len() as u64 && !returning {
            let what = format!("thread {tid} was stopped inside the vdso of another kernel");
            return Err(RestoreError::Machine(what));
        }
    }
    Ok(())
}

/// The highest place for `bytes` below `limit` that is apart from what is `taken` (sorted).
fn below(taken: &[(u64, u64)], bytes: u64, limit: u64) -> Option<u64> {
    let mut top = limit;
    for &(start, end) in taken.iter().rev().filter(|(start, _)| *start < limit) {
        let base = top.checked_sub(bytes + PAGE_BYTES)?;
        if base >= end + PAGE_BYTES {
            return Some(base);
        }
        top = top.min(start);
    }
    top.checked_sub(bytes + PAGE_BYTES).filter(|&base| base >= 16 * PAGE_BYTES)
}

/// A function that a vdso exports.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    name: Vec<u8>,
    at: usize,
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let raw = bytes.get(at..at.checked_add(size)?)?;
    Some(raw.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)))
}

/// The functions that the ELF file `vdso` exports; `None` if it makes no sense.
fn functions(vdso: &[u8]) -> Option<Vec<Function>> {
    if !vdso.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, count) = (number(vdso, 40, 8)? as usize, number(vdso, 60, 2)? as usize);
    let section = |i: usize| -> Option<[u64; 4]> {
        let at = table.checked_add(i.checked_mul(SECTION_BYTES)?)?;
        let kind = number(vdso, at + 4, 4)?;
        let link = number(vdso, at + 40, 4)?;
        Some([kind, number(vdso, at + 24, 8)?, number(vdso, at + 32, 8)?, link])
    };
    let dynsym = (0..count).filter_map(section).find(|s| s[0] == SHT_DYNSYM)?;
    let [_, names, names_bytes, _] = section(dynsym[3] as usize)?;
    let names = vdso.get(names as usize..names.checked_add(names_bytes)? as usize)?;
    let symbols = vdso.get(dynsym[1] as usize..dynsym[1].checked_add(dynsym[2])? as usize)?;
    let mut all = Vec::new();
    for symbol in symbols.chunks_exact(SYMBOL_BYTES) {
        let name = names.get(number(symbol, 0, 4)? as usize..)?;
        let name = name.split(|&b| b == 0).next()?.to_vec();
        // Function, defined.
        if symbol[4] & 0xf != 2 || number(symbol, 6, 2)? == 0 {
            continue;
        }
        let at = number(symbol, 8, 8)? as usize;
        vdso.get(at..)?;
        all.push(Function { name, at });
    }
    (!all.is_empty()).then_some(all)
}

/// What is called for a function, without the prefix that some of its names have.
fn plain(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"__vdso_").unwrap_or(name)
}

/// The bytes of the vdso `old`, which lay at `old_at`, such that each of its functions leads to the
/// one of the same name in `new`, which lies at `new_at`.
fn redirect(old: &[u8], old_at: u64, new: &[u8], new_at: u64) -> Option<Vec<u8>> {
    let (from, to) = (functions(old)?, functions(new)?);
    let mut entries: Vec<usize> = from.iter().map(|f| f.at).collect();
    entries.sort_unstable();
    let mut bytes = old.to_vec();
    for f in &from {
        let target = to.iter().find(|t| plain(&t.name) == plain(&f.name));
        let code = match target {
            Some(t) => jump(old_at + f.at as u64, new_at + t.at as u64),
            None => stub(plain(&f.name)),
        };
        let next = entries.iter().find(|&&e| e > f.at).copied().unwrap_or(bytes.len());
        if next - f.at < code.len() {
            return None;
        }
        bytes[f.at..f.at + code.len()].copy_from_slice(&code);
    }
    Some(bytes)
}

fn jump(from: u64, to: u64) -> Vec<u8> {
    let distance = to.wrapping_sub(from + NEAR_JUMP_BYTES as u64) as i64;
    if let Ok(distance) = i32::try_from(distance) {
        return [&[0xe9], &distance.to_le_bytes()[..]].concat();
    }
    // jmp [rip], and behind it the address.
    [&[0xff, 0x25, 0, 0, 0, 0], &to.to_le_bytes()[..]].concat()
}

/// A function that makes its system call, or says that there is none.
fn stub(name: &[u8]) -> Vec<u8> {
    match CALLS.iter().find(|(n, _)| *n == name) {
        // mov eax, number; syscall; ret
        Some((_, call)) => {
            [&[0xb8], &(*call as u32).to_le_bytes()[..], &[0x0f, 0x05, 0xc3]].concat()
        }
        // mov rax, -ENOSYS; ret
        None => [&[0x48, 0xc7, 0xc0], &(-libc::ENOSYS).to_le_bytes()[..], &[0xc3]].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs;

    /// This process's vdso and where it lies.
    fn own() -> (Vec<u8>, u64) {
        let pid = std::process::id() as i32;
        let maps = procfs::maps(pid).unwrap();
        let m = maps.iter().find(|m| m.path == b"[vdso]").unwrap();
        let mut bytes = vec![0; (m.end - m.start) as usize];
        memory::read_exact(pid, m.start, &mut bytes).unwrap();
        (bytes, m.start)
    }

    /// Puts bytes into executable memory and calls the function `name` in them as `clock_gettime`.
    fn ask(bytes: &[u8], at: *mut u8, name: &[u8]) -> [i64; 2] {
        let function = functions(bytes).unwrap().into_iter().find(|f| f.name == name).unwrap();
        let mut time = [0i64; 2];
        // SAFETY: `at` has room for the bytes, which are code that was made to be run there; the
        // function fills a live structure.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            let call: extern "C" fn(i32, *mut i64) -> i32 =
                std::mem::transmute(at.add(function.at));
            assert_eq!(call(libc::CLOCK_MONOTONIC, time.as_mut_ptr()), 0);
        }
        time
    }

    fn room(bytes: usize, hint: u64) -> *mut u8 {
        let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping where the kernel finds room.
        let at = unsafe { libc::mmap(hint as *mut libc::c_void, bytes, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast()
    }

    #[test]
    fn redirected_functions_tell_the_time() {
        let (vdso, at) = own();
        let before = std::time::Instant::now();
        // Near the new one, and too far from it for a short jump.
        for hint in [at - (64 << 20), 0x2_0000_0000] {
            let to = room(vdso.len(), hint);
            let bytes = redirect(&vdso, to as u64, &vdso, at).unwrap();
            assert_ne!(bytes, vdso);
            let time = ask(&bytes, to, b"__vdso_clock_gettime");
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: fills a live structure.
            unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
            assert!((0..=before.elapsed().as_secs() as i64 + 1).contains(&(now.tv_sec - time[0])));
        }
    }

    #[test]
    fn a_function_that_is_gone_makes_its_system_call() {
        let (vdso, _) = own();
        let mut new = vdso.clone();
        // The new kernel's has no function of this name.
        let name = b"clock_gettime\0";
        let places: Vec<usize> =
            (0..vdso.len() - name.len()).filter(|&i| vdso[i..].starts_with(name)).collect();
        assert!(!places.is_empty());
        places.iter().for_each(|&i| new[i] = b'x');
        let to = room(vdso.len(), 0);
        let bytes = redirect(&vdso, to as u64, &new, 0x1000).unwrap();
        assert!(ask(&bytes, to, b"__vdso_clock_gettime")[0] > 0);
        assert_eq!(stub(b"sgx_enter_enclave")[3..7], (-38i32).to_le_bytes());
    }

    #[test]
    fn what_is_no_vdso_is_refused() {
        let (vdso, at) = own();
        assert_eq!(redirect(&vdso, at, b"", 0), None);
        assert_eq!(redirect(&vdso[..4096], at, &vdso, at), None);
        for i in (0..512).chain(4096..vdso.len()) {
            // Any byte may be wrong: no panic, and no code beyond the end.
            let mut damaged = vdso.clone();
            damaged[i] ^= 0xff;
            let found = redirect(&damaged, at, &vdso, at);
            assert!(found.is_none_or(|b| b.len() == vdso.len()));
        }
    }

    #[test]
    fn room_is_found_below() {
        let page = PAGE_BYTES;
        let taken = [(100 * page, 200 * page), (204 * page, 210 * page), (210 * page, 212 * page)];
        assert_eq!(below(&taken, 4 * page, 210 * page), Some(95 * page));
        assert_eq!(below(&taken, 2 * page, 204 * page), Some(201 * page));
        assert_eq!(below(&[(0, 100 * page)], page, 101 * page), None);
    }
}
