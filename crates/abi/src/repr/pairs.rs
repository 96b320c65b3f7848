//! Translations of integer constants between the machine's values and those of another ABI.

use std::ffi::c_int;

/// What no translation gives: the machine refuses it.
pub(super) const NONSENSE: c_int = c_int::MIN;

/// Constants by pairs: the machine's value and the ABI's. Other values from 0 on pass as they are.
macro_rules! pairs {
    ($to_core:ident, $to_abi:ident: $($core:literal = $abi:literal),* $(,)?) => {
        #[inline]
        pub fn $to_core(value: c_int) -> c_int {
            match value {
                $($abi => $core,)*
                v if v >= 0 => v,
                _ => crate::repr::pairs::NONSENSE,
            }
        }
        #[inline]
        pub fn $to_abi(value: c_int) -> c_int {
            match value {
                $($core => $abi,)*
                v => v,
            }
        }
    };
}

/// As `pairs`, for sets that have no other values.
macro_rules! closed {
    ($to_core:ident, $to_abi:ident: $($core:literal = $abi:literal),* $(,)?) => {
        #[allow(dead_code)]
        pub fn $to_core(value: c_int) -> c_int {
            match value {
                $($abi => $core,)*
                _ => crate::repr::pairs::NONSENSE,
            }
        }
        #[allow(dead_code)]
        pub fn $to_abi(value: c_int) -> c_int {
            match value {
                $($core => $abi,)*
                v => v,
            }
        }
    };
}

pub(super) use {closed, pairs};

/// Bits of modes in which a file is opened: the machine's, and ROMIO's, which MPICH and Open MPI
/// have both.
const AMODES: [(c_int, c_int); 9] =
    [(1, 128), (2, 1), (4, 16), (8, 64), (16, 2), (32, 8), (64, 256), (128, 32), (256, 4)];

pub fn amode_in(amode: c_int) -> c_int {
    if amode & !511 != 0 {
        return NONSENSE;
    }
    let bits = AMODES.iter().filter(|(_, romio)| amode & romio != 0);
    bits.fold(0, |sum, (core, _)| sum | core)
}

pub fn amode_out(amode: c_int) -> c_int {
    let bits = AMODES.iter().filter(|(core, _)| amode & core != 0);
    bits.fold(0, |sum, (_, romio)| sum | romio)
}

// SEEK_CUR, SEEK_END, SEEK_SET.
closed!(whence_in, whence_out: 401 = 602, 402 = 604, 403 = 600);

/// A displacement that may be `MPI_DISPLACEMENT_CURRENT`, which is ROMIO's; no other is below 0.
pub fn displacement_in(disp: i64) -> i64 {
    match disp {
        -54_278_278 => eyrie_core::file::DISPLACEMENT_CURRENT,
        eyrie_core::file::DISPLACEMENT_CURRENT => i64::MIN,
        other => other,
    }
}
