//! Which representations there are, and datatypes as they lie in files that have them.

use std::rc::Rc;

use super::datarep::{Datarep, Rep};
use crate::datatype::Datatype;
use crate::error::{Res, class};
use crate::machine::Machine;

/// `MPI_MAX_DATAREP_STRING`, with the zero at its end.
const MAX_NAME_BYTES: usize = 128;

impl Machine {
    /// `MPI_Register_datarep`.
    pub fn register_datarep(&mut self, rep: Datarep) -> Res<()> {
        if rep.name.is_empty() || rep.name.len() >= MAX_NAME_BYTES {
            return Err(class::ARG);
        }
        if self.rep_of(&rep.name).is_ok() {
            return Err(class::DUP_DATAREP);
        }
        self.files.datareps.push(Rc::new(rep));
        Ok(())
    }

    pub(super) fn rep_of(&self, name: &[u8]) -> Res<Rep> {
        if let Some(rep) = self.files.datareps.iter().find(|rep| rep.name == name) {
            return Ok(Rep::Registered(rep.clone()));
        }
        let known = [Rep::Native, Rep::Internal, Rep::External32];
        known.into_iter().find(|rep| rep.name() == name).ok_or(class::UNSUPPORTED_DATAREP)
    }

    /// A datatype as it lies in a file.
    pub(super) fn file_type(&mut self, rep: &Rep, t: &Rc<Datatype>) -> Res<Rc<Datatype>> {
        if !rep.converts() {
            return Ok(t.clone());
        }
        let mut leaves = Vec::new();
        for leaf in t.leaves() {
            let bytes = self.leaf_bytes(rep, &leaf)?;
            leaves.push((leaf, bytes));
        }
        self.types.mapped(t, &leaves)
    }

    /// Bytes of a predefined datatype in a file.
    pub(super) fn leaf_bytes(&mut self, rep: &Rep, leaf: &Datatype) -> Res<u64> {
        match rep {
            Rep::Native | Rep::Internal => Ok(leaf.size),
            Rep::External32 => Ok(leaf.signature().foreign_size()),
            Rep::Registered(rep) => {
                let (rep, handle) = (rep.clone(), leaf.predefined().ok_or(class::TYPE)?);
                let bytes = self.lend(|| (rep.extent)(handle))?;
                u64::try_from(bytes).map_err(|_| class::CONVERSION)
            }
        }
    }
}
