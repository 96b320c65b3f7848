//! Datatypes of Fortran kinds chosen by precision and range (`MPI_Type_create_f90_*`).
//!
//! Kept true: the same arguments give the same handle; such datatypes are committed and cannot be
//! freed, as the standard's unnamed predefined datatypes. Kinds are gfortran's on x86-64.

use super::contents::{Combiner, Made};
use super::layout::Layout;
use super::{Basic, Datatype, Element, TypeTable};
use crate::consts::UNDEFINED;
use crate::error::{Res, class};
use crate::handle::Handle;

/// What was made before, by combiner and arguments.
#[derive(Default)]
pub(super) struct Cache(Vec<(Combiner, i32, i32, Handle)>);

/// Precision, decimal exponent range, representation of a real and of a complex number.
const REALS: [(i32, i32, Basic, Basic); 4] = [
    (6, 37, Basic::F32, Basic::C32),
    (15, 307, Basic::F64, Basic::C64),
    (18, 4931, Basic::F80, Basic::C80),
    (33, 4931, Basic::F128, Basic::C128),
];

/// Decimal range and representation of an integer.
const INTEGERS: [(i32, Basic); 5] =
    [(2, Basic::I8), (4, Basic::I16), (9, Basic::I32), (18, Basic::I64), (38, Basic::I128)];

/// A requirement that `MPI_UNDEFINED` leaves open.
fn required(value: i32) -> Res<i32> {
    match value {
        UNDEFINED => Ok(0),
        n if n < 0 => Err(class::ARG),
        n => Ok(n),
    }
}

fn real(p: i32, r: i32) -> Res<(Basic, Basic)> {
    if (p, r) == (UNDEFINED, UNDEFINED) {
        return Err(class::ARG);
    }
    let (p, r) = (required(p)?, required(r)?);
    let fits = REALS.iter().find(|(digits, range, ..)| p <= *digits && r <= *range);
    fits.map(|row| (row.2, row.3)).ok_or(class::ARG)
}

impl TypeTable {
    pub fn f90_real(&mut self, p: i32, r: i32) -> Res<Handle> {
        self.f90(Combiner::F90Real, p, r, real(p, r)?.0)
    }

    pub fn f90_complex(&mut self, p: i32, r: i32) -> Res<Handle> {
        self.f90(Combiner::F90Complex, p, r, real(p, r)?.1)
    }

    pub fn f90_integer(&mut self, r: i32) -> Res<Handle> {
        let range = required(r)?;
        let fits = INTEGERS.iter().find(|(most, _)| range <= *most);
        self.f90(Combiner::F90Integer, r, 0, fits.ok_or(class::ARG)?.1)
    }

    fn f90(&mut self, combiner: Combiner, p: i32, r: i32, kind: Basic) -> Res<Handle> {
        let known = self.f90.0.iter().find(|row| (row.0, row.1, row.2) == (combiner, p, r));
        if let Some(row) = known {
            return Ok(row.3);
        }
        let args = [i64::from(p), i64::from(r)];
        let args = if combiner == Combiner::F90Integer { &args[..1] } else { &args[..] };
        let made = Made::new(combiner, Vec::new()).ints(args);
        let mut t = Datatype::new(Layout::basic(kind)?, made);
        t.element = Some(Element::One(kind));
        t.committed.set(true);
        let h = self.insert(t)?;
        self.get_ref(h)?.predefined.set(Some(h));
        self.f90.0.push((combiner, p, r, h));
        Ok(h)
    }
}
