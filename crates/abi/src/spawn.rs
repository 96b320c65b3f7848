//! Starting programs (MPI 5.0 section 11.8). What says which ones counts at the root only.

use std::ffi::{c_char, c_int};

use eyrie_core::consts::COMM_NULL;
use eyrie_core::dynamic::{Place, Wanted};
use eyrie_core::error::{Res, class};
use eyrie_core::handle::Handle;
use eyrie_core::machine::Machine;

use crate::arg::{array, bytes, len, put};
use crate::hosts;
use crate::repr::*;
use crate::shim::shims;

shims! {
    fn PMPI_Comm_spawn (command: *const c_char, argv: *mut *mut c_char, maxprocs: c_int,
                        info: Info, root: c_int, comm: Comm, new: *mut Comm, codes: *mut c_int)
        on comm; |m| {
        let wanted = match is_root(m, root, comm)? {
            true => wanted(m, command, argv.cast_const(), maxprocs, info).map(|one| vec![one]),
            false => Ok(Vec::new()),
        };
        started(m, wanted, root, comm, new, codes)?;
    }
    fn PMPI_Comm_spawn_multiple (
        count: c_int, commands: *mut *mut c_char, argvs: *mut *mut *mut c_char,
        maxprocs: *const c_int, infos: *const Info, root: c_int, comm: Comm, new: *mut Comm,
        codes: *mut c_int) on comm; |m| {
        let all = match is_root(m, root, comm)? {
            true => several(m, count, commands, argvs, maxprocs, infos),
            false => Ok(Vec::new()),
        };
        started(m, all, root, comm, new, codes)?;
    }
}

fn is_root(m: &Machine, root: c_int, comm: Comm) -> Res<bool> {
    Ok(m.comm_rank(comm.core())? == rank_in(root))
}

/// The programs of arrays.
///
/// # Safety
/// As `MPI_Comm_spawn_multiple` has it.
unsafe fn several(
    m: &Machine,
    count: c_int,
    commands: *mut *mut c_char,
    argvs: *mut *mut *mut c_char,
    maxprocs: *const c_int,
    infos: *const Info,
) -> Res<Vec<Wanted>> {
    let count = len(count)?;
    // SAFETY: the arrays have so many elements, by the caller's word; there may be no `argvs`.
    unsafe {
        let commands = array(commands.cast_const(), count)?;
        let (maxprocs, infos) = (array(maxprocs, count)?, array(infos, count)?);
        let argv = |i: usize| match argvs.is_null() {
            true => std::ptr::null(),
            false => argvs.add(i).read().cast_const(),
        };
        (0..count).map(|i| wanted(m, commands[i], argv(i), maxprocs[i], infos[i])).collect()
    }
}

/// A program, and how often it is wanted.
///
/// # Safety
/// `command` is null or a C string; `argv` is null or a list of them that ends with null.
unsafe fn wanted(
    m: &Machine,
    command: *const c_char,
    argv: *const *mut c_char,
    maxprocs: c_int,
    info: Info,
) -> Res<Wanted> {
    // SAFETY: by the caller's word.
    let program = unsafe { bytes(command) }?.to_vec();
    let mut arguments = Vec::new();
    if !argv.is_null() {
        for at in 0.. {
            // SAFETY: the list goes on until its null.
            let argument = unsafe { argv.add(at).read() };
            if argument.is_null() {
                break;
            }
            // SAFETY: by the caller's word.
            arguments.push(unsafe { bytes(argument) }?.to_vec());
        }
    }
    let info = m.infos.get_optional(info.core())?;
    let of = |key: &[u8]| info.and_then(|info| info.get(key)).map(<[u8]>::to_vec);
    let most = u32::try_from(len(maxprocs)?).map_err(|_| class::ARG)?;
    let counts = match of(b"soft") {
        Some(soft) => numbers(&soft, most).ok_or(class::INFO_VALUE)?,
        None => vec![most],
    };
    let env = of(b"env").unwrap_or_default();
    let env = env.split(|byte| *byte == b'\n').filter(|one| one.contains(&b'='));
    let place = Place {
        folder: of(b"wdir").or_else(|| of(b"wd")),
        path: of(b"path"),
        env: env.map(<[u8]>::to_vec).collect(),
        here: hosts::are_here(&of)?,
    };
    Ok(Wanted { program, arguments, place, most, counts })
}

/// What the info key `soft` means (MPI 5.0 section 11.8.4): numbers `a`, from `a` to `b` (`a:b`),
/// each `c`-th of them (`a:b:c`). Those up to `most`, the greatest first.
fn numbers(soft: &[u8], most: u32) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in std::str::from_utf8(soft).ok()?.split(',') {
        let words: Option<Vec<i64>> = part.split(':').map(|w| w.trim().parse().ok()).collect();
        let (first, last, step) = match words?[..] {
            [one] => (one, one, 1),
            [first, last] => (first, last, 1),
            [first, last, step] if step != 0 => (first, last, step),
            _ => return None,
        };
        let inside = |n: &i64| if step > 0 { *n <= last } else { *n >= last };
        let known = std::iter::successors(Some(first), |n| n.checked_add(step)).take_while(inside);
        // What is outside for ever ends the list.
        let known = known.take_while(|n| if step > 0 { *n <= i64::from(most) } else { *n >= 0 });
        all.extend(known.filter_map(|n| u32::try_from(n).ok()).filter(|n| *n <= most));
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    Some(all)
}

/// What came of it goes to the program.
///
/// # Safety
/// `new` is null or a variable of the program's, `codes` null or an array for all that were wanted.
unsafe fn started(
    m: &mut Machine,
    wanted: Res<Vec<Wanted>>,
    root: c_int,
    comm: Comm,
    new: *mut Comm,
    codes: *mut c_int,
) -> Res<()> {
    let (made, each): (Res<Handle>, _) = m.comm_spawn(wanted, rank_in(root), comm.core())?;
    if !codes.is_null() {
        for (i, code) in each.into_iter().enumerate() {
            // SAFETY: by the caller's word.
            unsafe { codes.add(i).write(code_out(code)) };
        }
    }
    // SAFETY: by the caller's word.
    unsafe { put(new, Comm::of(made.unwrap_or(COMM_NULL))) }?;
    made.map(drop)
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn soft_numbers_are_read() {
        assert_eq!(numbers(b"3", 4), Some(vec![3]));
        assert_eq!(numbers(b"1:3", 4), Some(vec![3, 2, 1]));
        assert_eq!(numbers(b"0:9:2,5", 6), Some(vec![6, 5, 4, 2, 0]));
        assert_eq!(numbers(b"8:1:-3", 6), Some(vec![5, 2]));
        assert_eq!(numbers(b"9:10", 6), Some(vec![]));
        for wrong in [&b""[..], b"a", b"1:2:0", b"1:2:3:4"] {
            assert_eq!(numbers(wrong, 6), None);
        }
    }
}
