//! How a datatype was made: envelope and contents (MPI 5.0 section 5.1.13).

use std::ffi::c_int;

use eyrie_core::datatype::{Combiner, Contents};
use eyrie_core::error::{Res, class};
use eyrie_core::handle::Handle;
use eyrie_core::machine::Machine;

use crate::arg::{array_mut, put, put_handles};
use crate::repr::*;
use crate::shim::shims;

/// The room of the program's array must do for what there is.
fn room(max: i64, have: usize) -> Res<()> {
    if usize::try_from(max).is_ok_and(|max| max >= have) { Ok(()) } else { Err(class::ARG) }
}

/// Translates the constants among a constructor's integers to the program's ABI.
fn constants_out(combiner: Combiner, integers: &mut [i64]) {
    let out = |v: &mut i64, f: fn(c_int) -> c_int| *v = f(*v as c_int).into();
    match combiner {
        Combiner::Subarray => integers.last_mut().into_iter().for_each(|v| out(v, order_out)),
        Combiner::Darray => {
            // size, rank, ndims, [gsizes], distribs, dargs, psizes, order; gsizes stand elsewhere
            // for types made by the large-count function.
            let n = integers.get(2).map_or(0, |n| *n as usize);
            let gsizes = if integers.len() == 4 + 4 * n { n } else { 0 };
            let (distribs, dargs) = (3 + gsizes, 3 + gsizes + n);
            for v in integers.iter_mut().skip(distribs).take(n) {
                out(v, distribution_out);
            }
            for v in integers.iter_mut().skip(dargs).take(n) {
                out(v, darg_out);
            }
            integers.last_mut().into_iter().for_each(|v| out(v, order_out));
        }
        _ => {}
    }
}

/// Contents with all constants in the program's form; checks the room first, so that a refused
/// call makes no handles.
fn contents(m: &mut Machine, h: Handle, rooms: [i64; 4]) -> Res<Contents> {
    let t = m.types.get_ref(h)?;
    let envelope = t.envelope();
    room(rooms[0], envelope.integers)?;
    room(rooms[1], envelope.addresses)?;
    room(rooms[2], envelope.large_counts)?;
    room(rooms[3], envelope.datatypes)?;
    let mut contents = m.types.contents(h)?;
    constants_out(envelope.combiner, &mut contents.integers);
    Ok(contents)
}

/// # Safety
/// The arrays are as long as `contents` checked.
unsafe fn put_contents(
    found: &Contents,
    integers: *mut c_int,
    addresses: *mut Aint,
    datatypes: *mut Datatype,
) -> Res<()> {
    // SAFETY: by the caller's word.
    unsafe {
        for (at, v) in array_mut(integers, found.integers.len())?.iter_mut().zip(&found.integers) {
            *at = *v as c_int;
        }
        let to = array_mut(addresses, found.addresses.len())?;
        for (at, v) in to.iter_mut().zip(&found.addresses) {
            *at = *v as Aint;
        }
        put_handles(datatypes, &found.datatypes);
    }
    Ok(())
}

shims! {
    fn PMPI_Type_get_envelope (
        datatype: Datatype, integers: *mut c_int, addresses: *mut c_int, datatypes: *mut c_int,
        combiner: *mut c_int); |m| {
        let e = m.types.get_ref(datatype.core())?.envelope();
        // A type made with large counts cannot be told in the small form.
        if e.large_counts > 0 { Err(class::TYPE)? }
        put(integers, e.integers as c_int)?;
        put(addresses, e.addresses as c_int)?;
        put(datatypes, e.datatypes as c_int)?;
        put(combiner, combiner_out(e.combiner as c_int))?;
    }
    fn PMPI_Type_get_envelope_c (
        datatype: Datatype, integers: *mut LargeCount, addresses: *mut LargeCount,
        large_counts: *mut LargeCount, datatypes: *mut LargeCount, combiner: *mut c_int); |m| {
        let e = m.types.get_ref(datatype.core())?.envelope();
        put(integers, e.integers as LargeCount)?;
        put(addresses, e.addresses as LargeCount)?;
        put(large_counts, e.large_counts as LargeCount)?;
        put(datatypes, e.datatypes as LargeCount)?;
        put(combiner, combiner_out(e.combiner as c_int))?;
    }
    fn PMPI_Type_get_contents (
        datatype: Datatype, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int,
        integers: *mut c_int, addresses: *mut Aint, datatypes: *mut Datatype); |m| {
        let rooms = [max_integers.wide(), max_addresses.wide(), 0, max_datatypes.wide()];
        let found = contents(m, datatype.core(), rooms)?;
        put_contents(&found, integers, addresses, datatypes)?;
    }
    fn PMPI_Type_get_contents_c (
        datatype: Datatype, max_integers: LargeCount, max_addresses: LargeCount,
        max_large_counts: LargeCount, max_datatypes: LargeCount, integers: *mut c_int,
        addresses: *mut Aint, large_counts: *mut LargeCount, datatypes: *mut Datatype); |m| {
        let rooms = [max_integers, max_addresses, max_large_counts, max_datatypes];
        let found = contents(m, datatype.core(), rooms)?;
        put_contents(&found, integers, addresses, datatypes)?;
        let to = array_mut(large_counts, found.large_counts.len())?;
        to.copy_from_slice(&found.large_counts);
    }
}
