//! User-defined reduction operations (MPI 5.0 section 6.9.5).

use std::ffi::{c_int, c_void};

use eyrie_core::error::class;
use eyrie_core::handle::Handle;

use crate::arg::{get, put};
use crate::repr::*;
use crate::shim::shims;

/// `MPI_User_function`, and with 64 bits `MPI_User_function_c`.
type Function<N> = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut N, *mut Datatype);

/// Calls the program's function for `n` elements: at once, or in as many pieces as its length
/// argument asks for.
pub fn apply<N: Num>(
    f: impl Fn(*mut c_void, *mut c_void, *mut N, *mut Datatype),
    a: *mut u8,
    b: *mut u8,
    n: i64,
    (datatype, fortran): (Handle, bool),
) {
    let mut done = 0;
    while done < n {
        let piece = n - done;
        // What does not fit goes in pieces of 2^30 elements.
        let (mut length, piece) = match N::narrow(piece) {
            Some(length) => (length, piece),
            None => match N::narrow(1 << 30) {
                Some(length) => (length, 1 << 30),
                None => return,
            },
        };
        let offset = if done == 0 { 0 } else { extent(datatype).wrapping_mul(done as isize) };
        let dt = Datatype::of(datatype);
        let mut dt = if fortran { dt.for_fortran() } else { dt };
        let (a, b) = (a.wrapping_offset(offset), b.wrapping_offset(offset));
        f(a.cast(), b.cast(), &mut length, &mut dt);
        done += piece;
    }
}

fn extent(datatype: Handle) -> isize {
    let m = crate::global::machine("PMPI_Op_create");
    m.types.get_ref(datatype).map_or(0, |t| t.extent as isize)
}

shims! {
    fn PMPI_Op_create | PMPI_Op_create_c (
        function: Option<Function<Count>>, commute: c_int, op: *mut Op); |m| {
        let f = function.ok_or(class::ARG)?;
        let fortran = is_fortran();
        // SAFETY: the program gave it as a function of this form; both buffers hold n elements.
        let f = move |a, b, n: *mut Count, dt: *mut Datatype| unsafe { f(a, b, n, dt) };
        let call = Box::new(move |a, b, n, dt| apply(f, a, b, n, (dt, fortran)));
        put(op, Op::of(m.ops.create_user(call, commute != 0)?))?;
    }
    fn PMPI_Op_free (op: *mut Op); |m| {
        let mut h = get(op)?.core();
        m.ops.free(&mut h)?;
        put(op, Op::of(h))?;
    }
    fn PMPI_Op_commutative (op: Op, commute: *mut c_int); |m| {
        put(commute, m.ops.is_commutative(op.core())?.into())?;
    }
}
