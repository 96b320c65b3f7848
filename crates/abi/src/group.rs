//! Groups (MPI 5.0 section 7.3).

use std::ffi::c_int;

use eyrie_core::error::{Res, class};

use crate::arg::{array, array_mut, get, len, put};
use crate::repr::*;
use crate::shim::shims;

/// Ranges of ranks as triplets.
///
/// # Safety
/// `at` is null or points to `n` triplets.
unsafe fn ranges<'a>(n: c_int, at: *const [c_int; 3]) -> Res<&'a [[c_int; 3]]> {
    // SAFETY: by the caller's word.
    unsafe { array(at, len(n)?) }
}

shims! {
    fn PMPI_Group_size (group: Group, size: *mut c_int); |m| {
        put(size, m.group_size(group.core())?)?;
    }
    fn PMPI_Group_rank (group: Group, rank: *mut c_int); |m| {
        put(rank, rank_out(m.group_rank(group.core())?))?;
    }
    fn PMPI_Group_translate_ranks (from: Group, n: c_int, ranks: *const c_int, to: Group,
                                   out: *mut c_int); |m| {
        let n = len(n)?;
        let ranks: Vec<i32> = array(ranks, n)?.iter().map(|r| rank_in(*r)).collect();
        let out = array_mut(out, n)?;
        m.group_translate_ranks(from.core(), &ranks, to.core(), out)?;
        for rank in out {
            *rank = rank_out(*rank);
        }
    }
    fn PMPI_Group_compare (a: Group, b: Group, result: *mut c_int); |m| {
        put(result, comparison_out(m.group_compare(a.core(), b.core())?))?;
    }
    fn PMPI_Group_union (a: Group, b: Group, group: *mut Group); |m| {
        put(group, Group::of(m.group_union(a.core(), b.core())?))?;
    }
    fn PMPI_Group_intersection (a: Group, b: Group, group: *mut Group); |m| {
        put(group, Group::of(m.group_intersection(a.core(), b.core())?))?;
    }
    fn PMPI_Group_difference (a: Group, b: Group, group: *mut Group); |m| {
        put(group, Group::of(m.group_difference(a.core(), b.core())?))?;
    }
    fn PMPI_Group_incl (group: Group, n: c_int, ranks: *const c_int, new: *mut Group); |m| {
        put(new, Group::of(m.group_incl(group.core(), array(ranks, len(n)?)?)?))?;
    }
    fn PMPI_Group_excl (group: Group, n: c_int, ranks: *const c_int, new: *mut Group); |m| {
        put(new, Group::of(m.group_excl(group.core(), array(ranks, len(n)?)?)?))?;
    }
    fn PMPI_Group_range_incl (group: Group, n: c_int, list: *const [c_int; 3],
                              new: *mut Group); |m| {
        put(new, Group::of(m.group_range_incl(group.core(), ranges(n, list)?)?))?;
    }
    fn PMPI_Group_range_excl (group: Group, n: c_int, list: *const [c_int; 3],
                              new: *mut Group); |m| {
        put(new, Group::of(m.group_range_excl(group.core(), ranges(n, list)?)?))?;
    }
    fn PMPI_Group_free (group: *mut Group); |m| {
        let mut h = get(group)?.core();
        if !h.is_dynamic() && h != eyrie_core::consts::GROUP_EMPTY { Err(class::GROUP)? }
        m.group_free(&mut h)?;
        put(group, Group::of(h))?;
    }
}
