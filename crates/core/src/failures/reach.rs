//! How far a loss is told by a communicator, and whose errors are the same on all of its members:
//! the hints `mpi_error_range` and `mpi_error_uniform` of ULFM's text.
//!
//! - `mpi_error_range`: `local` (a call fails that needs the lost rank), `group` (the loss of any
//!   member revokes the communicator), `universe` (that of any rank of the job does).
//! - `mpi_error_uniform`: `local` (each member has the error that it met), `create` (calls that
//!   make a communicator return an error on all members or on none), `coll` (so do all blocking
//!   collective calls).
//!
//! Kept true: who revokes by range tells all members, as `MPI_Comm_revoke` does, so they need not
//! have the same hint. A call that is uniform ends with an agreement on each member, also where its
//! arguments were refused; so all members must have the same `mpi_error_uniform`.

use std::rc::Rc;

use crate::comm::Comm;
use crate::error::{Class, class};
use crate::handle::Handle;
use crate::machine::Machine;

const RANGE: &[u8] = b"mpi_error_range";
const UNIFORM: &[u8] = b"mpi_error_uniform";
/// What communicators keep of info objects for this.
pub(crate) const HINTS: [&[u8]; 2] = [RANGE, UNIFORM];

/// Whose loss revokes a communicator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Range {
    /// Nobody's.
    #[default]
    Local,
    /// A member's.
    Group,
    /// That of any rank.
    Universe,
}

/// Which calls return an error on all members or on none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Uniform {
    #[default]
    Local,
    /// Those that make communicators.
    Create,
    /// All that are collective, and block.
    Coll,
}

impl Comm {
    /// A hint was set; values that nobody knows change nothing. Whether it is kept.
    pub(crate) fn reaches(&self, key: &[u8], value: &[u8]) -> bool {
        let is = |name: &str| value.eq_ignore_ascii_case(name.as_bytes());
        match key {
            RANGE if is("local") => self.health.range.set(Range::Local),
            RANGE if is("group") => self.health.range.set(Range::Group),
            RANGE if is("universe") => self.health.range.set(Range::Universe),
            UNIFORM if is("local") => self.health.uniform.set(Uniform::Local),
            UNIFORM if is("create") || is("construct") => self.health.uniform.set(Uniform::Create),
            UNIFORM if is("coll") => self.health.uniform.set(Uniform::Coll),
            RANGE | UNIFORM => return false,
            _ => {}
        }
        true
    }
}

impl Machine {
    /// These are lost: communicators whose range that is are revoked.
    pub(super) fn revoke_by_range(&mut self, lost: &[u32]) {
        let concerned = |comm: &Rc<Comm>| match comm.health.range.get() {
            Range::Local => false,
            Range::Group => lost.iter().any(|rank| comm.has_member(*rank)),
            Range::Universe => true,
        };
        let all: Vec<Rc<Comm>> = self.comms.all().filter(|c| concerned(c)).cloned().collect();
        for comm in all {
            self.revoke_and_tell(&comm);
        }
    }

    /// After a collective call on a communicator: whether all members have come through, where that
    /// is to be the same on all.
    #[inline]
    pub fn all_alike<T, E>(&mut self, comm: Handle, done: Result<T, E>) -> Result<T, E>
    where
        E: From<Class>,
    {
        match self.comms.get_ref(comm) {
            Ok(c) if c.health.uniform.get() == Uniform::Coll => self.agree_on(comm, done),
            _ => done,
        }
    }

    /// The same after one that makes a communicator, which is freed if others have none.
    #[inline]
    pub fn all_alike_made<E>(
        &mut self,
        comm: Handle,
        made: Result<Handle, E>,
    ) -> Result<Handle, E>
    where
        E: From<Class>,
    {
        match self.comms.get_ref(comm) {
            Ok(c) if c.health.uniform.get() >= Uniform::Create => {}
            _ => return made,
        }
        let own = made.as_ref().ok().copied();
        let agreed = self.agree_on(comm, made);
        if let (Some(mut own), Err(_)) = (own, &agreed)
            && self.comms.get_ref(own).is_ok()
        {
            // Nobody uses it.
            let _ = self.comm_free(&mut own);
        }
        agreed
    }

    #[cold]
    fn agree_on<T, E>(&mut self, comm: Handle, done: Result<T, E>) -> Result<T, E>
    where
        E: From<Class>,
    {
        if !self.endpoint.loses_for_good() {
            return done;
        }
        let comm = self.comms.get(comm)?;
        self.heed_failures();
        let key = self.begin_agreement(&comm, u32::from(done.is_ok()), 0, None);
        let agreed = self.await_agreement(key)?;
        let value = done?;
        if agreed.flag == 1 {
            return Ok(value);
        }
        Err(if comm.usable().is_err() { class::REVOKED.into() } else { class::PROC_FAILED.into() })
    }
}
