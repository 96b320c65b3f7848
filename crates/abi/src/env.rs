//! Startup, shutdown, versions, clocks, memory (MPI 5.0 chapters 9, 11, 20).

use std::ffi::{c_char, c_double, c_int, c_void};

use eyrie_core::attr::AttrKind;
use eyrie_core::consts::{COMM_SELF, INFO_NULL};
use eyrie_core::error::class;
use eyrie_ledger::clock;

use crate::arg::{bytes, put, put_text};
use crate::check;
use crate::global::{self, lifetime};
use crate::repr::*;
use crate::shim::shims;

/// Blocks of `MPI_Alloc_mem` start at a cache line.
const ALLOC_ALIGN_BYTES: usize = 64;
const MAX_LIBRARY_VERSION_STRING_BYTES: usize = 8192;
const SECOND_NS: u64 = 1_000_000_000;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    lifetime::start("PMPI_Init", 0);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Init_thread(
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    let level = lifetime::start("PMPI_Init_thread", thread_in(required).max(0));
    if !provided.is_null() {
        // SAFETY: the program's variable, by MPI's contract.
        unsafe { provided.write(thread_out(level)) };
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Initialized(flag: *mut c_int) -> c_int {
    // SAFETY: null or the program's variable, by MPI's contract.
    answer(unsafe { put(flag, global::initialized().into()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Finalized(flag: *mut c_int) -> c_int {
    // SAFETY: null or the program's variable, by MPI's contract.
    answer(unsafe { put(flag, global::finalized().into()) })
}

/// Result of a function that may be called when there is no machine, hence no error handler.
fn answer(result: eyrie_core::error::Res<()>) -> c_int {
    result.map_or_else(|e| code_out(e.0), |()| 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Get_version(version: *mut c_int, subversion: *mut c_int) -> c_int {
    // SAFETY: null or the program's variables, by MPI's contract.
    answer(unsafe { put(version, 5).and_then(|()| put(subversion, 0)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Get_library_version(text: *mut c_char, length: *mut c_int) -> c_int {
    let own = format!("Eyrie {}, {ABI_NAME}", env!("CARGO_PKG_VERSION"));
    // SAFETY: the program's variables; the text has the room that the header names.
    answer(unsafe {
        put_text(text, MAX_LIBRARY_VERSION_STRING_BYTES, own.as_bytes())
            .and_then(|n| put(length, n))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Abi_get_version(major: *mut c_int, minor: *mut c_int) -> c_int {
    // SAFETY: null or the program's variables, by MPI's contract.
    answer(unsafe { put(major, ABI_VERSION.0).and_then(|()| put(minor, ABI_VERSION.1)) })
}

/// The time of MPI_Wtime.
#[inline]
pub fn wtime_ns() -> u64 {
    match global::outside() {
        Some(mut m) => {
            m.enter();
            let time = m.wtime();
            m.leave();
            time
        }
        None => clock::past_the_door(),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn PMPI_Wtime() -> c_double {
    let time = wtime_ns();
    (time / SECOND_NS) as f64 + (time % SECOND_NS) as f64 * 1e-9
}

#[unsafe(no_mangle)]
pub extern "C" fn PMPI_Wtick() -> c_double {
    1e-9
}

/// In C its arguments are variable; those after the level are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn PMPI_Pcontrol(_level: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Abort(_comm: Comm, code: c_int) -> c_int {
    global::abort(global::machine("PMPI_Abort"), code)
}

/// Eyrie's own, for libraries: what they repeat cannot become what it was. Does not return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIX_Eyrie_diverge(why: *const c_char) -> c_int {
    // SAFETY: null or a text, by the contract.
    let why = unsafe { bytes(why) }.unwrap_or(b"a library cannot repeat what it did");
    global::machine("MPIX_Eyrie_diverge").diverge(&String::from_utf8_lossy(why))
}

shims! {
    fn PMPI_Finalize (); |m| {
        // Before all else the callbacks on MPI_COMM_SELF (MPI 5.0 section 11.2.4); they may call
        // MPI.
        m.attr_delete_all(AttrKind::Comm, COMM_SELF)?;
        if m.sessions.is_empty() {
            check::tell_leaks(m);
            m.finalize();
            lifetime::stop();
        } else {
            global::leave_to_sessions();
        }
    }
    fn PMPI_Query_thread (provided: *mut c_int); |_m| {
        put(provided, thread_out(global::level()))?;
    }
    fn PMPI_Is_thread_main (flag: *mut c_int); |_m| {
        put(flag, global::is_main_thread().into())?;
    }
    fn PMPI_Get_processor_name (name: *mut c_char, length: *mut c_int); |m| {
        let own = m.processor_name(|| {
            let mut host: [c_char; MAX_PROCESSOR_NAME_BYTES] = [0; MAX_PROCESSOR_NAME_BYTES];
            // The last byte stays zero, should the name be too long.
            match libc::gethostname(host.as_mut_ptr(), host.len() - 1) {
                0 => Ok(bytes(host.as_ptr())?.to_vec()),
                _ => Err(class::OTHER),
            }
        })?;
        put(length, put_text(name, MAX_PROCESSOR_NAME_BYTES, &own)?)?;
    }
    // Eyrie's own: for libraries that find something out which is no call of MPI (`regions`).
    fn MPIX_Eyrie_repeats (flag: *mut c_int); |m| {
        put(flag, m.repeats().into())?;
    }
    // `bytes` has room for `room` bytes, of which `count` are what was found out; afterwards they
    // are what was found out when it was done first.
    fn MPIX_Eyrie_input (bytes: *mut c_void, count: *mut c_int, room: c_int); |m| {
        let own = usize::try_from(*count.as_ref().ok_or(class::ARG)?).map_err(|_| class::COUNT)?;
        let room = usize::try_from(room).map_err(|_| class::COUNT)?;
        if bytes.is_null() || own > room {
            Err(class::ARG)?
        }
        let found = m.input(std::slice::from_raw_parts(bytes.cast::<u8>(), own))?;
        if found.len() > room {
            Err(class::TRUNCATE)?
        }
        std::ptr::copy_nonoverlapping(found.as_ptr(), bytes.cast::<u8>(), found.len());
        put(count, c_int::try_from(found.len()).map_err(|_| class::COUNT)?)?;
    }
    // Calls `work`, which calls nothing of MPI, and no image is taken before it has returned.
    fn MPIX_Eyrie_undisturbed (
        work: Option<unsafe extern "C" fn(*mut c_void)>, with: *mut c_void
    ); |_m| {
        work.ok_or(class::ARG)?(with);
    }
    fn PMPI_Alloc_mem (size: Aint, _info: Info, base: *mut c_void); |_m| {
        let size = usize::try_from(size).map_err(|_| class::ARG)?;
        let mut at = std::ptr::null_mut();
        if libc::posix_memalign(&mut at, ALLOC_ALIGN_BYTES, size.max(1)) != 0 {
            Err(class::NO_MEM)?
        }
        put(base.cast::<*mut c_void>(), at)?;
    }
    fn PMPI_Free_mem (base: *mut c_void); |_m| {
        libc::free(base);
    }
    fn PMPI_Get_hw_resource_info (info: *mut Info); |m| {
        // Nothing is known of the hardware: the object is empty.
        put(info, Info::of(m.info_create()?))?;
    }
    fn PMPI_Abi_get_info (info: *mut Info); |m| {
        let new = m.info_create()?;
        for (key, bytes) in [
            ("mpi_aint_size", size_of::<Aint>()),
            ("mpi_count_size", size_of::<LargeCount>()),
            ("mpi_offset_size", size_of::<Offset>()),
        ] {
            m.info_set(new, key.as_bytes(), bytes.to_string().as_bytes())?;
        }
        put(info, Info::of(new))?;
    }
    fn PMPI_Abi_get_fortran_info (info: *mut Info); |m| {
        let new = m.info_create()?;
        for (key, value) in FORTRAN_INFO {
            m.info_set(new, key.as_bytes(), value.as_bytes())?;
        }
        put(info, Info::of(new))?;
    }
    fn PMPI_Abi_set_fortran_info (info: Info); |m| {
        // They are fixed: only a repetition of them is right (MPI 5.0 section 20.4).
        if info.core() == INFO_NULL { Err(class::INFO)? }
        for (key, value) in FORTRAN_INFO {
            let given = m.info_get(info.core(), key.as_bytes())?;
            if given.is_some_and(|v| v != value.as_bytes()) { Err(class::ABI)? }
        }
    }
    fn PMPI_Abi_get_fortran_booleans (size: c_int, yes: *mut c_void, no: *mut c_void,
                                      is_set: *mut c_int); |_m| {
        put(is_set, 1)?;
        put_logical(size, yes, 1)?;
        put_logical(size, no, 0)?;
    }
    fn PMPI_Abi_set_fortran_booleans (size: c_int, yes: *mut c_void, no: *mut c_void); |_m| {
        let same = get_logical(size, yes)? == 1 && get_logical(size, no)? == 0;
        if !same { Err(class::ABI)? }
    }
}

/// Sizes of Fortran's default kinds and the optional types, by the keys of MPI 5.0 section 20.4.
const FORTRAN_INFO: [(&str, &str); 23] = [
    ("mpi_logical_size", "4"),
    ("mpi_integer_size", "4"),
    ("mpi_real_size", "4"),
    ("mpi_double_precision_size", "8"),
    ("mpi_logical1_supported", "true"),
    ("mpi_logical2_supported", "true"),
    ("mpi_logical4_supported", "true"),
    ("mpi_logical8_supported", "true"),
    ("mpi_logical16_supported", "true"),
    ("mpi_integer1_supported", "true"),
    ("mpi_integer2_supported", "true"),
    ("mpi_integer4_supported", "true"),
    ("mpi_integer8_supported", "true"),
    ("mpi_integer16_supported", "true"),
    ("mpi_real2_supported", "true"),
    ("mpi_real4_supported", "true"),
    ("mpi_real8_supported", "true"),
    ("mpi_real16_supported", "true"),
    ("mpi_complex4_supported", "true"),
    ("mpi_complex8_supported", "true"),
    ("mpi_complex16_supported", "true"),
    ("mpi_complex32_supported", "true"),
    ("mpi_double_complex_supported", "true"),
];

/// # Safety
/// `at` is null or points to a Fortran LOGICAL of `size` bytes.
unsafe fn put_logical(size: c_int, at: *mut c_void, value: u8) -> eyrie_core::error::Res<()> {
    // SAFETY: by the caller's word.
    unsafe {
        match size {
            1 => put(at.cast::<u8>(), value),
            2 => put(at.cast::<u16>(), value.into()),
            4 => put(at.cast::<u32>(), value.into()),
            8 => put(at.cast::<u64>(), value.into()),
            16 => put(at.cast::<u128>(), value.into()),
            _ => Err(class::ARG),
        }
    }
}

/// # Safety
/// `at` is null or points to a Fortran LOGICAL of `size` bytes.
unsafe fn get_logical(size: c_int, at: *const c_void) -> eyrie_core::error::Res<u128> {
    use crate::arg::get;
    // SAFETY: by the caller's word.
    unsafe {
        match size {
            1 => get(at.cast::<u8>()).map(u128::from),
            2 => get(at.cast::<u16>()).map(u128::from),
            4 => get(at.cast::<u32>()).map(u128::from),
            8 => get(at.cast::<u64>()).map(u128::from),
            16 => get(at.cast::<u128>()),
            _ => Err(class::ARG),
        }
    }
}
