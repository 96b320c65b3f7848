//! What the machine has and what it is busy with: processors, memory, loads.

use std::ffi::{c_int, c_long, c_uint, c_void};

use eyrie_ledger::door::What;
use libc::{cpu_set_t, pid_t};

use super::identity;
use super::real::{self, Real, call};
use super::told::{LONGEST, asked, bytes_of, fail};

/// Whether `sysconf` says of this what differs from machine to machine, or from time to time.
fn differs(name: c_int) -> bool {
    matches!(
        name,
        libc::_SC_NPROCESSORS_CONF
            | libc::_SC_NPROCESSORS_ONLN
            | libc::_SC_PHYS_PAGES
            | libc::_SC_AVPHYS_PAGES
            | libc::_SC_OPEN_MAX
            | libc::_SC_CHILD_MAX
            | libc::_SC_ARG_MAX
            | libc::_SC_LEVEL1_ICACHE_SIZE..=libc::_SC_LEVEL4_CACHE_LINESIZE
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_sysconf(name: c_int) -> c_long {
    let real = real::SYSCONF.at();
    if real.is_null() {
        return early(name);
    }
    // SAFETY: a number.
    let plain = || unsafe { call!(real, fn(c_int) -> c_long, name) };
    if !differs(name) {
        return plain();
    }
    asked(What::Limits, &mut [], |_| plain()).unwrap_or_else(plain)
}

/// Before this library is set up an allocator may ask, which the search for a function would need.
#[cold]
fn early(name: c_int) -> c_long {
    if name == libc::_SC_PAGESIZE {
        // SAFETY: has no preconditions.
        return unsafe { libc::getauxval(libc::AT_PAGESZ) } as c_long;
    }
    if name == libc::_SC_NPROCESSORS_ONLN || name == libc::_SC_NPROCESSORS_CONF {
        let mut set = [0_u64; LONGEST / 8];
        // SAFETY: our variable.
        let filled = affinity(0, size_of_val(&set), unsafe { bytes_of(&raw mut set) }.as_mut_ptr());
        let count = set.iter().map(|word| word.count_ones()).sum::<u32>();
        return if filled < 0 { 1 } else { c_long::from(count.max(1)) };
    }
    let real = real::SYSCONF.found();
    if real.is_null() {
        return fail(libc::ENOSYS).into();
    }
    // SAFETY: a number.
    unsafe { call!(real, fn(c_int) -> c_long, name) }
}

/// What the kernel says: how many bytes it filled, or an error.
fn affinity(pid: pid_t, bytes: usize, set: *mut u8) -> c_long {
    // SAFETY: by the caller's word so many bytes may be written.
    unsafe { libc::syscall(libc::SYS_sched_getaffinity, pid, bytes, set) }
}

/// A number that the C library has by a function without arguments.
fn number<T: Into<i64>>(real: &Real, plain: fn(*mut c_void) -> T, missing: i64) -> i64 {
    let real = real.found();
    if real.is_null() {
        return missing;
    }
    asked(What::Limits, &mut [], |_| plain(real).into()).unwrap_or_else(|| plain(real).into())
}

fn int(real: *mut c_void) -> c_int {
    // SAFETY: so it is declared.
    unsafe { call!(real, fn() -> c_int,) }
}

fn long(real: *mut c_void) -> c_long {
    // SAFETY: so it is declared.
    unsafe { call!(real, fn() -> c_long,) }
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_get_nprocs() -> c_int {
    number(&real::NPROCS, int, 1) as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_get_nprocs_conf() -> c_int {
    number(&real::NPROCS_CONF, int, 1) as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_get_phys_pages() -> c_long {
    number(&real::PAGES, long, -1)
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_get_avphys_pages() -> c_long {
    number(&real::FREE_PAGES, long, -1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_sysinfo(at: *mut libc::sysinfo) -> c_int {
    // SAFETY: by the caller's word.
    let plain = |at: *mut libc::sysinfo| unsafe { libc::syscall(libc::SYS_sysinfo, at) };
    if at.is_null() {
        return plain(at) as c_int;
    }
    // SAFETY: the program's variable.
    let own = unsafe { bytes_of(at) };
    asked(What::System, own, |own| plain(own.as_mut_ptr().cast())).unwrap_or_else(|| plain(at))
        as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getloadavg(at: *mut f64, count: c_int) -> c_int {
    const MOST: c_int = 3;
    let real = real::GETLOADAVG.found();
    if real.is_null() {
        return fail(libc::ENOSYS);
    }
    // SAFETY: by the caller's word.
    let plain = |at: *mut f64| unsafe { call!(real, fn(*mut f64, c_int) -> c_int, at, count) };
    if at.is_null() || count <= 0 {
        return plain(at);
    }
    let bytes = 8 * count.min(MOST) as usize;
    // SAFETY: the program's variable.
    let own = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), bytes) };
    let told = asked(What::System, own, |own| {
        let mut loads = [0.0; MOST as usize];
        let result = plain(loads.as_mut_ptr());
        for (to, load) in own.chunks_exact_mut(8).zip(loads) {
            to.copy_from_slice(&load.to_ne_bytes());
        }
        result.into()
    });
    told.map_or_else(|| plain(at), |result| result as c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_sched_getcpu() -> c_int {
    let real = real::SCHED_GETCPU.at();
    if real.is_null() {
        let (mut cpu, none) = (0, std::ptr::null_mut());
        // SAFETY: our variable.
        return if unsafe { eyrie_libc_getcpu(&mut cpu, none) } < 0 { -1 } else { cpu as c_int };
    }
    let told = asked(What::Processor, &mut [], |_| int(real).into());
    told.map_or_else(|| int(real), |cpu| cpu as c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getcpu(cpu: *mut c_uint, node: *mut c_uint) -> c_int {
    let plain = |both: &mut [c_uint; 2]| {
        let [cpu, node] = both;
        let (cpu, node, none) = (&raw mut *cpu, &raw mut *node, std::ptr::null_mut::<c_void>());
        // SAFETY: our variables.
        unsafe { libc::syscall(libc::SYS_getcpu, cpu, node, none) }
    };
    let mut both = [0; 2];
    // SAFETY: our variable.
    let own = unsafe { bytes_of(&raw mut both) };
    let told = asked(What::Processor, own, |own| {
        let mut both = [0; 2];
        let result = plain(&mut both);
        own[..4].copy_from_slice(&both[0].to_ne_bytes());
        own[4..].copy_from_slice(&both[1].to_ne_bytes());
        result
    });
    let result = told.unwrap_or_else(|| plain(&mut both)) as c_int;
    for (to, number) in [(cpu, both[0]), (node, both[1])] {
        if result == 0 && !to.is_null() {
            // SAFETY: the program's variable.
            unsafe { *to = number };
        }
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_sched_getaffinity(
    pid: pid_t,
    bytes: usize,
    set: *mut cpu_set_t,
) -> c_int {
    let real = real::AFFINITY.at();
    if real.is_null() {
        let filled = affinity(pid, bytes, set.cast());
        if filled < 0 {
            return -1;
        }
        let filled = filled as usize;
        // SAFETY: the program's variable; the kernel fills no more of it than there is to say.
        unsafe { set.cast::<u8>().add(filled).write_bytes(0, bytes.saturating_sub(filled)) };
        return 0;
    }
    let is_own = pid == 0 || identity::is_this(pid);
    let pid = if is_own { 0 } else { pid };
    // SAFETY: by the caller's word.
    let plain = |set: *mut cpu_set_t| unsafe {
        call!(real, fn(pid_t, usize, *mut cpu_set_t) -> c_int, pid, bytes, set)
    };
    if !is_own || set.is_null() || bytes > LONGEST {
        return plain(set);
    }
    // SAFETY: the program's variable.
    let own = unsafe { std::slice::from_raw_parts_mut(set.cast::<u8>(), bytes) };
    asked(What::Affinity, own, |own| plain(own.as_mut_ptr().cast()).into())
        .map_or_else(|| plain(set), |result| result as c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_pthread_getaffinity_np(
    thread: libc::pthread_t,
    bytes: usize,
    set: *mut cpu_set_t,
) -> c_int {
    let real = real::THREAD_AFFINITY.found();
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: by the caller's word.
    let plain = |set: *mut cpu_set_t| unsafe {
        call!(real, fn(libc::pthread_t, usize, *mut cpu_set_t) -> c_int, thread, bytes, set)
    };
    // SAFETY: has no preconditions.
    if thread != unsafe { libc::pthread_self() } || set.is_null() || bytes > LONGEST {
        return plain(set);
    }
    // SAFETY: the program's variable.
    let own = unsafe { std::slice::from_raw_parts_mut(set.cast::<u8>(), bytes) };
    asked(What::Affinity, own, |own| plain(own.as_mut_ptr().cast()).into())
        .map_or_else(|| plain(set), |result| result as c_int)
}

/// `struct mallinfo` and `struct mallinfo2`: ten numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Heap<T>([T; 10]);

/// What the allocator holds. This library allocates as well, and not in each life the same.
fn heap<T: Copy + Default>(real: &Real) -> Heap<T> {
    let real = real.found();
    let plain = || {
        if real.is_null() {
            return Heap([T::default(); 10]);
        }
        // SAFETY: so it is declared.
        unsafe { call!(real, fn() -> Heap<T>,) }
    };
    let mut all = Heap([T::default(); 10]);
    // SAFETY: our variable, of numbers.
    let own = unsafe { bytes_of(&raw mut all) };
    let told = asked(What::Heap, own, |own| {
        let mut found = plain();
        // SAFETY: as above.
        own.copy_from_slice(unsafe { bytes_of(&raw mut found) });
        0
    });
    if told.is_some() { all } else { plain() }
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_mallinfo() -> Heap<c_int> {
    heap(&real::MALLINFO)
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_mallinfo2() -> Heap<usize> {
    heap(&real::MALLINFO2)
}
