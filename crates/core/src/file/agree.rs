//! What the ranks of a file agree on at the end of a collective call: that all went well, or not.

use crate::datatype::predefined::INT64_T;
use crate::error::{Class, Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op;

impl Machine {
    /// An error of one rank is one of all. All are to have given the same `value`.
    pub(super) fn file_agree(&mut self, comm: Handle, value: i64, own: Res<()>) -> Res<()> {
        let error = own.err().map_or(0, |class| i64::from(class.0));
        let given = [error, value, value.wrapping_neg()];
        let mut most = given;
        let (from, to) = (given.as_ptr().cast(), most.as_mut_ptr().cast());
        // SAFETY: both have three words of this type.
        unsafe { self.allreduce(from, to, given.len() as i64, INT64_T, op::MAX, comm)? };
        own?;
        if most[0] != 0 {
            return Err(i32::try_from(most[0]).map_or(class::INTERN, Class));
        }
        if most[1] == most[2].wrapping_neg() { Ok(()) } else { Err(class::NOT_SAME) }
    }

    /// A number that rank 0 knows.
    pub(super) fn file_told(&mut self, comm: Handle, mut value: i64) -> Res<i64> {
        // SAFETY: a word of this type.
        unsafe { self.bcast((&raw mut value).cast(), 1, INT64_T, 0, comm)? };
        Ok(value)
    }
}
