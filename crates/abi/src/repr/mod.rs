//! How MPI's objects and constants look to the program: everything in which the ABIs differ.
//!
//! The shims are written once over the names of this module. The machine speaks the standard ABI's
//! integers; `standard` passes them on, `mpich` and `openmpi` translate them in both directions.

use std::ffi::{c_int, c_void};

use eyrie_core::handle::Handle;
use eyrie_core::status::Status as CoreStatus;

#[cfg(abi_mpich)]
mod mpich;
#[cfg(abi_mpich)]
mod mpich_types;
#[cfg(abi_openmpi)]
mod openmpi;
#[cfg(abi_openmpi)]
mod openmpi_objects;
#[cfg(any(abi_mpich, abi_openmpi))]
mod pairs;
#[cfg(not(any(abi_mpich, abi_openmpi)))]
mod standard;
pub mod tools;

#[cfg(abi_mpich)]
pub use mpich::*;
#[cfg(abi_openmpi)]
pub use openmpi::*;
#[cfg(not(any(abi_mpich, abi_openmpi)))]
pub use standard::*;

pub type Aint = isize;
pub type Offset = i64;
pub type LargeCount = i64;
/// Address of the program's buffer, as it was given.
pub type Buf = *mut c_void;
pub type ConstBuf = *const c_void;

/// A handle in the program's form. Each has `int` and `of_int`, too: the integer that stands for it
/// in Fortran, and in `MPI_X_toint`.
pub trait CHandle: Copy {
    /// The machine's handle; `Handle(0)`, which names nothing, if the value means nothing.
    fn core(self) -> Handle;
    fn of(handle: Handle) -> Self;
    /// What a function in Fortran is given, which reads an INTEGER where it points to.
    fn for_fortran(self) -> Self {
        self
    }
    /// What the program gave.
    fn bits(self) -> u64 {
        self.core().0.into()
    }
}

/// A count or displacement of a binding: `int` in the small, 64 bits in the large.
pub trait Num: Copy {
    fn wide(self) -> i64;
    /// `None` if the value does not fit.
    fn narrow(value: i64) -> Option<Self>;
}

impl Num for c_int {
    #[inline]
    fn wide(self) -> i64 {
        self.into()
    }
    fn narrow(value: i64) -> Option<Self> {
        value.try_into().ok()
    }
}

impl Num for i64 {
    #[inline]
    fn wide(self) -> i64 {
        self
    }
    fn narrow(value: i64) -> Option<Self> {
        Some(value)
    }
}

impl Num for isize {
    #[inline]
    fn wide(self) -> i64 {
        self as i64
    }
    fn narrow(value: i64) -> Option<Self> {
        Some(value as isize)
    }
}

/// The fields that programs read and write themselves.
impl Status {
    pub fn error(&self) -> c_int {
        self.error
    }

    pub fn set_error(&mut self, error: c_int) {
        self.error = error;
    }

    pub fn set_source(&mut self, source: c_int) {
        self.source = source;
    }

    pub fn set_tag(&mut self, tag: c_int) {
        self.tag = tag;
    }

    pub fn source(&self) -> c_int {
        self.source
    }

    pub fn tag(&self) -> c_int {
        self.tag
    }
}

/// Writes a status where the program wants one; `MPI_ERROR` only after calls on several requests,
/// and in the empty status, which has it (MPI 5.0 section 3.7.3).
///
/// # Safety
/// `at` is the ABI's "ignore" value or points to a status.
pub unsafe fn put_status(at: *mut Status, status: &CoreStatus, with_error: bool) {
    if !is_status_ignore(at) {
        // SAFETY: the caller says that it points to a status.
        let out = unsafe { &mut *at };
        let error = out.error();
        out.store(status);
        if !with_error && status.source != eyrie_core::consts::ANY_SOURCE {
            out.set_error(error);
        }
    }
}

/// The machine's form of a buffer address that may be `MPI_IN_PLACE`.
#[inline]
pub fn buf_in(buf: ConstBuf) -> *const u8 {
    if buf as usize == IN_PLACE { eyrie_core::consts::IN_PLACE as *const u8 } else { buf.cast() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_the_round_trip() {
        for bytes in [0, 5, 1 << 31, (1 << 40) + 3] {
            for cancelled in [false, true] {
                let status = CoreStatus { source: 3, tag: 9, error: 15, bytes, cancelled };
                let mut c = Status::default();
                c.store(&status);
                assert_eq!(c.load(), status);
            }
        }
    }

    #[test]
    fn predefined_handles_survive_the_round_trip() {
        for h in (0x200..0x2f0).chain([0x80_00_00_00 | 2 << 27]) {
            let c = Datatype::of(Handle(h));
            if c.core() != Handle(0) {
                assert_eq!(c.core(), Handle(h));
            }
        }
        for h in [0x20, 0x21, 0x24, 0x39, 0x3d] {
            assert_eq!(Op::of(Handle(h)).core(), Handle(h));
        }
        for h in [0x100, 0x101, 0x102] {
            assert_eq!(Comm::of(Handle(h)).core(), Handle(h));
        }
        assert_eq!(Request::of(Handle(0x180)).core(), Handle(0x180));
        assert_eq!(Message::of(Handle(0x128)).core(), Handle(0x128));
        for h in [0x118, 0x8000_0000 | 8 << 27 | 5] {
            assert_eq!(File::of(Handle(h)).core(), Handle(h));
        }
        for h in [0x100, 0x101, 0x102, 0x8000_0005] {
            assert_eq!(Comm::of_int(Comm::of(Handle(h)).int()).core(), Handle(h));
        }
        for h in [0x200, 0x209, 0x214, 0x219, 0x8000_0000 | 2 << 27] {
            assert_eq!(Datatype::of_int(Datatype::of(Handle(h)).int()).core(), Handle(h));
        }
    }

    #[test]
    fn constants_survive_the_round_trip() {
        for rank in [-1, -3, -4, 0, 7] {
            assert_eq!(rank_in(rank_out(rank)), rank);
        }
        for tag in [-2, 0, 99] {
            assert_eq!(tag_in(tag_out(tag)), tag);
        }
        for class in (0..=62).chain(101..=103).chain(1001..=1018) {
            assert_eq!(code_in(code_out(class)), class);
        }
        for key in [0, 501, 502, 503, 504, 505, 506, 507] {
            assert_eq!(keyval_in(keyval_out(key)), key);
        }
        for amode in 0..512 {
            assert_eq!(amode_in(amode_out(amode)), amode);
        }
        let combiners: std::collections::BTreeSet<_> = (101..=117).map(combiner_out).collect();
        assert_eq!(combiners.len(), 17);
    }
}
