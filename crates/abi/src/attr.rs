//! Attribute caching (MPI 5.0 section 7.7) on communicators, datatypes and windows.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use eyrie_core::attr::{AttrKind, CopyRule, DeleteFn};
use eyrie_core::consts::COMM_NULL;
use eyrie_core::handle::Handle;

use crate::arg::{get, put};
use crate::repr::*;
use crate::shim::shims;

/// Address of a copy function, or one of the predefined ones.
type CopyAddress = usize;
type CopyC<H> =
    unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
type DeleteC<H> = unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_void) -> c_int;

/// The rule for a copy function of the program.
///
/// # Safety
/// `address` is one of the header's constants or a `CopyC<H>` that stays callable.
unsafe fn copy_rule<H: CHandle + 'static>(address: CopyAddress, extra: *mut c_void) -> CopyRule {
    if address == COPY_FN_NULL {
        return CopyRule::Null;
    }
    if is_dup_fn(address) {
        return CopyRule::Dup;
    }
    // SAFETY: by the caller's word it is such a function.
    let f = unsafe { std::mem::transmute::<usize, CopyC<H>>(address) };
    CopyRule::Call(Rc::new(move |object: Handle, keyval, value| {
        let (mut out, mut flag) = (0usize, 0);
        let at = (&raw mut out).cast();
        // SAFETY: the arguments are those of an attribute copy function.
        let code = unsafe {
            f(H::of(object), keyval_out(keyval), extra, value as *mut c_void, at, &mut flag)
        };
        match (code, flag) {
            (0, 0) => Ok(None),
            (0, _) => Ok(Some(out)),
            _ => Err(code_in(code)),
        }
    }))
}

/// The closure for a delete function of the program.
fn delete_rule<H: CHandle + 'static>(
    f: Option<DeleteC<H>>,
    extra: *mut c_void,
) -> Option<DeleteFn> {
    let f = f?;
    Some(Rc::new(move |object: Handle, keyval, value| {
        // SAFETY: the arguments are those of an attribute delete function.
        code_in(unsafe { f(H::of(object), keyval_out(keyval), value as *mut c_void, extra) })
    }))
}

/// The functions for one kind of object.
macro_rules! attributes {
    ($kind:ident $handle:ident $on:ident: $create:ident $free:ident $set:ident $get:ident
     $delete:ident) => {
        shims! {
            fn $create (copy: CopyAddress, delete: Option<DeleteC<$handle>>, keyval: *mut c_int,
                        extra: *mut c_void); |m| {
                let copy = copy_rule::<$handle>(copy, extra);
                let key = m.keyval_create(AttrKind::$kind, copy, delete_rule(delete, extra))?;
                put(keyval, keyval_out(key))?;
            }
            fn $free (keyval: *mut c_int); |m| {
                let mut key = keyval_in(get(keyval)?);
                m.keyval_free(AttrKind::$kind, &mut key)?;
                put(keyval, keyval_out(key))?;
            }
            fn $set (object: $handle, keyval: c_int, value: *mut c_void) on $on(object); |m| {
                m.attr_set(AttrKind::$kind, object.core(), keyval_in(keyval), value as usize)?;
            }
            fn $get (object: $handle, keyval: c_int, value: *mut c_void, flag: *mut c_int)
                on $on(object); |m| {
                let found = m.attr_get(AttrKind::$kind, object.core(), keyval_in(keyval))?;
                put(flag, found.is_some().into())?;
                if let Some(v) = found {
                    put(value.cast::<usize>(), v)?;
                }
            }
            fn $delete (object: $handle, keyval: c_int) on $on(object); |m| {
                m.attr_delete(AttrKind::$kind, object.core(), keyval_in(keyval))?;
            }
        }
    };
}

/// Errors on a communicator go to its own handler.
fn same(comm: Comm) -> Comm {
    comm
}

/// Errors on other objects go to none's.
fn own<H>(_object: H) -> Comm {
    Comm::of(COMM_NULL)
}

attributes!(Comm Comm same: PMPI_Comm_create_keyval PMPI_Comm_free_keyval PMPI_Comm_set_attr
    PMPI_Comm_get_attr PMPI_Comm_delete_attr);
attributes!(Type Datatype own: PMPI_Type_create_keyval PMPI_Type_free_keyval PMPI_Type_set_attr
    PMPI_Type_get_attr PMPI_Type_delete_attr);
attributes!(Win Win own: PMPI_Win_create_keyval PMPI_Win_free_keyval PMPI_Win_set_attr
    PMPI_Win_get_attr PMPI_Win_delete_attr);
// The names of MPI-1, deprecated and still in the standard.
attributes!(Comm Comm same: PMPI_Keyval_create PMPI_Keyval_free PMPI_Attr_put PMPI_Attr_get
    PMPI_Attr_delete);
