//! Datatypes (MPI 5.0 chapter 5): constructors, commit and free, sizes, bounds, names.

use std::ffi::{c_char, c_int, c_void};

use eyrie_core::attr::AttrKind;
use eyrie_core::datatype::{Darray, Form};
use eyrie_core::error::{Res, class};
use eyrie_core::handle::Handle;
use eyrie_core::machine::Machine;

use crate::arg::{array, bytes, get, handles, len, put, put_num, put_text, wide};
use crate::repr::*;
use crate::shim::shims;

/// Length of an array of blocks or dimensions.
fn count(n: i64) -> Res<usize> {
    usize::try_from(n).map_err(|_| class::COUNT)
}

/// Gives a new type to the program; types made by large-count functions remember it.
///
/// # Safety
/// `at` is null or points to a handle.
unsafe fn give(m: &Machine, at: *mut Datatype, h: Handle, large: bool) -> Res<()> {
    if large {
        m.types.get_ref(h)?.set_form(Form::Large);
    }
    // SAFETY: by the caller's word.
    unsafe { put(at, Datatype::of(h)) }
}

shims! {
    fn PMPI_Type_contiguous | PMPI_Type_contiguous_c (
        n: Count, old: Datatype, new: *mut Datatype); |m| {
        let h = m.types.contiguous(n.wide(), old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_vector | PMPI_Type_vector_c (
        n: Count, block: Count, stride: Count, old: Datatype, new: *mut Datatype); |m| {
        let h = m.types.vector(n.wide(), block.wide(), stride.wide(), old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_create_hvector | PMPI_Type_create_hvector_c (
        n: Count, block: Count, stride: Aint, old: Datatype, new: *mut Datatype); |m| {
        let h = m.types.hvector(n.wide(), block.wide(), stride.wide(), old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_indexed | PMPI_Type_indexed_c (
        n: Count, blocks: *const Count, displs: *const Count, old: Datatype,
        new: *mut Datatype); |m| {
        let n = count(n.wide())?;
        let h = m.types.indexed(&wide(blocks, n)?, &wide(displs, n)?, old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_create_hindexed | PMPI_Type_create_hindexed_c (
        n: Count, blocks: *const Count, displs: *const Aint, old: Datatype,
        new: *mut Datatype); |m| {
        let n = count(n.wide())?;
        let h = m.types.hindexed(&wide(blocks, n)?, &wide(displs, n)?, old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_create_indexed_block | PMPI_Type_create_indexed_block_c (
        n: Count, block: Count, displs: *const Count, old: Datatype, new: *mut Datatype); |m| {
        let displs = wide(displs, count(n.wide())?)?;
        let h = m.types.indexed_block(block.wide(), &displs, old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_create_hindexed_block | PMPI_Type_create_hindexed_block_c (
        n: Count, block: Count, displs: *const Aint, old: Datatype, new: *mut Datatype); |m| {
        let displs = wide(displs, count(n.wide())?)?;
        let h = m.types.hindexed_block(block.wide(), &displs, old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_create_struct | PMPI_Type_create_struct_c (
        n: Count, blocks: *const Count, displs: *const Aint, types: *const Datatype,
        new: *mut Datatype); |m| {
        let n = count(n.wide())?;
        let types = handles(types, n)?;
        let h = m.types.structure(&wide(blocks, n)?, &wide(displs, n)?, &types)?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_create_subarray | PMPI_Type_create_subarray_c (
        n: c_int, sizes: *const Count, subsizes: *const Count, starts: *const Count,
        order: c_int, old: Datatype, new: *mut Datatype); |m| {
        let n = len(n)?;
        let (sizes, subsizes) = (wide(sizes, n)?, wide(subsizes, n)?);
        let starts = wide(starts, n)?;
        let h = m.types.subarray(&sizes, &subsizes, &starts, order_in(order), old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_create_darray | PMPI_Type_create_darray_c (
        size: c_int, rank: c_int, n: c_int, gsizes: *const Count, distribs: *const c_int,
        dargs: *const c_int, psizes: *const c_int, order: c_int, old: Datatype,
        new: *mut Datatype); |m| {
        let n = len(n)?;
        let distribs: Vec<i32> = array(distribs, n)?.iter().map(|v| distribution_in(*v)).collect();
        let dargs: Vec<i32> = array(dargs, n)?.iter().map(|v| darg_in(*v)).collect();
        let args = Darray {
            size,
            rank,
            gsizes: &wide(gsizes, n)?,
            distribs: &distribs,
            dargs: &dargs,
            psizes: array(psizes, n)?,
            order: order_in(order),
        };
        let h = m.types.darray(args, old.core())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_create_resized | PMPI_Type_create_resized_c (
        old: Datatype, lb: Aint, extent: Aint, new: *mut Datatype); |m| {
        let h = m.types.resized(old.core(), lb.wide(), extent.wide())?;
        give(m, new, h, LARGE)?;
    }
    fn PMPI_Type_dup (old: Datatype, new: *mut Datatype); |m| {
        let mut h = m.types.dup(old.core())?;
        if let Err(e) = m.attr_copy_all(AttrKind::Type, old.core(), h) {
            m.types.free(&mut h)?;
            Err(e)?
        }
        put(new, Datatype::of(h))?;
    }
    fn PMPI_Type_create_f90_real (p: c_int, r: c_int, new: *mut Datatype); |m| {
        put(new, Datatype::of(m.types.f90_real(p, r)?))?;
    }
    fn PMPI_Type_create_f90_complex (p: c_int, r: c_int, new: *mut Datatype); |m| {
        put(new, Datatype::of(m.types.f90_complex(p, r)?))?;
    }
    fn PMPI_Type_create_f90_integer (r: c_int, new: *mut Datatype); |m| {
        put(new, Datatype::of(m.types.f90_integer(r)?))?;
    }
    fn PMPI_Type_match_size (kind: c_int, size: c_int, datatype: *mut Datatype); |m| {
        put(datatype, Datatype::of(m.types.match_size(typeclass_in(kind), size)?))?;
    }
    fn PMPI_Type_get_value_index (value: Datatype, index: Datatype, pair: *mut Datatype); |m| {
        put(pair, Datatype::of(m.types.value_index(value.core(), index.core())?))?;
    }
    fn PMPI_Type_commit (datatype: *mut Datatype); |m| {
        m.types.commit(get(datatype)?.core())?;
    }
    fn PMPI_Type_free (datatype: *mut Datatype); |m| {
        let mut h = get(datatype)?.core();
        if m.types.get_ref(h)?.predefined().is_some() { Err(class::TYPE)? }
        m.attr_delete_all(AttrKind::Type, h)?;
        m.types.free(&mut h)?;
        put(datatype, Datatype::of(h))?;
    }
    fn PMPI_Type_size | PMPI_Type_size_c (datatype: Datatype, size: *mut Count); |m| {
        put_num(size, m.types.get_ref(datatype.core())?.size as i64)?;
    }
    fn PMPI_Type_size_x (datatype: Datatype, size: *mut LargeCount); |m| {
        put(size, m.types.get_ref(datatype.core())?.size as i64)?;
    }
    fn PMPI_Type_get_extent (datatype: Datatype, lb: *mut Aint, extent: *mut Aint); |m| {
        extent_of(m, datatype, lb, extent)?;
    }
    fn PMPI_Type_get_extent_c (datatype: Datatype, lb: *mut Aint, extent: *mut Aint); |m| {
        extent_of(m, datatype, lb, extent)?;
    }
    fn PMPI_Type_get_extent_x (datatype: Datatype, lb: *mut Aint, extent: *mut Aint); |m| {
        extent_of(m, datatype, lb, extent)?;
    }
    fn PMPI_Type_get_true_extent (datatype: Datatype, lb: *mut Aint, extent: *mut Aint); |m| {
        true_extent_of(m, datatype, lb, extent)?;
    }
    fn PMPI_Type_get_true_extent_c (datatype: Datatype, lb: *mut Aint, extent: *mut Aint); |m| {
        true_extent_of(m, datatype, lb, extent)?;
    }
    fn PMPI_Type_get_true_extent_x (datatype: Datatype, lb: *mut Aint, extent: *mut Aint); |m| {
        true_extent_of(m, datatype, lb, extent)?;
    }
    fn PMPI_Type_set_name (datatype: Datatype, name: *const c_char); |m| {
        let name = bytes(name)?;
        let name = &name[..name.len().min(MAX_OBJECT_NAME_BYTES - 1)];
        m.types.get_ref(datatype.core())?.set_name(name);
    }
    fn PMPI_Type_get_name (datatype: Datatype, name: *mut c_char, length: *mut c_int); |m| {
        let null = datatype.core() == eyrie_core::consts::DATATYPE_NULL;
        let text = if null {
            b"MPI_DATATYPE_NULL".to_vec()
        } else {
            m.types.get_ref(datatype.core())?.name()
        };
        put(length, put_text(name, MAX_OBJECT_NAME_BYTES, &text)?)?;
    }
    fn PMPI_Get_address (location: *const c_void, address: *mut Aint); |_m| {
        put(address, location as Aint)?;
    }
}

/// # Safety
/// The addresses are null or point to integers.
unsafe fn extent_of(m: &Machine, dt: Datatype, lb: *mut Aint, extent: *mut Aint) -> Res<()> {
    let t = m.types.get_ref(dt.core())?;
    // SAFETY: by the caller's word.
    unsafe {
        put(lb, t.lb as Aint)?;
        put(extent, t.extent as Aint)
    }
}

/// # Safety
/// The addresses are null or point to integers.
unsafe fn true_extent_of(m: &Machine, dt: Datatype, lb: *mut Aint, extent: *mut Aint) -> Res<()> {
    let t = m.types.get_ref(dt.core())?;
    // SAFETY: by the caller's word.
    unsafe {
        put(lb, t.true_lb as Aint)?;
        put(extent, t.true_extent as Aint)
    }
}

/// Address arithmetic needs no machine.
#[unsafe(no_mangle)]
pub extern "C" fn PMPI_Aint_add(base: Aint, displacement: Aint) -> Aint {
    base.wrapping_add(displacement)
}

#[unsafe(no_mangle)]
pub extern "C" fn PMPI_Aint_diff(a: Aint, b: Aint) -> Aint {
    a.wrapping_sub(b)
}
