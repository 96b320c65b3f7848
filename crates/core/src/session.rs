//! Sessions (MPI 5.0 section 11.3): handles by which a part of a program uses MPI for itself, and
//! named sets of processes.

use crate::bsend::Attached;
use crate::consts::{COMM_WORLD, SESSION_NULL, SPARES};
use crate::errhandler::ErrKind;
use crate::error::{Res, class};
use crate::group::Group;
use crate::handle::{Handle, Kind, Slab};
use crate::info::Info;
use crate::machine::Machine;
use std::rc::Rc;

/// The sets that there are, by name. The last one only where the job has spare ranks.
static SETS: [&[u8]; 3] = [b"mpi://WORLD", b"mpi://SELF", SPARES];

/// One session.
pub struct Session {
    pub(crate) errhandler: Handle,
    pub(crate) buffer: Attached,
    info: Info,
}

/// All sessions that are open.
pub struct SessionTable(pub(crate) Slab<Session>);

impl Default for SessionTable {
    fn default() -> Self {
        SessionTable(Slab::new(Kind::Session))
    }
}

impl SessionTable {
    pub fn get(&self, session: Handle) -> Res<&Session> {
        self.0.get(session).ok_or(class::SESSION)
    }

    pub(crate) fn get_mut(&mut self, session: Handle) -> Res<&mut Session> {
        self.0.get_mut(session).ok_or(class::SESSION)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Machine {
    /// `level`: the thread level it gets, as its info object names it.
    pub fn session_init(&mut self, level: &[u8], errhandler: Handle) -> Res<Handle> {
        self.errhandler_check(ErrKind::Session, errhandler)?;
        let mut info = Info::default();
        info.set(b"thread_level", level);
        info.set(b"mpi_memory_alloc_kinds", b"mpi,system");
        self.errhandlers.acquire(errhandler)?;
        self.sessions.0.insert(Session { errhandler, buffer: Attached::default(), info })
    }

    /// What was sent with it is on its way; communicators that were made of it go on.
    pub fn session_finalize(&mut self, session: &mut Handle) -> Res<()> {
        self.sessions.get(*session)?;
        self.drain_sends();
        let gone = self.sessions.0.remove(*session).ok_or(class::SESSION)?;
        self.errhandlers.release(gone.errhandler);
        *session = SESSION_NULL;
        Ok(())
    }

    /// A new info object with the hints in use.
    pub fn session_get_info(&mut self, session: Handle) -> Res<Handle> {
        let info = self.sessions.get(session)?.info.clone();
        self.infos.insert(info)
    }

    pub fn session_num_psets(&self, session: Handle) -> Res<i32> {
        self.sessions.get(session).map(|_| self.sets().len() as i32)
    }

    pub fn session_nth_pset(&self, session: Handle, n: i32) -> Res<&'static [u8]> {
        self.sessions.get(session)?;
        usize::try_from(n).ok().and_then(|n| self.sets().get(n)).copied().ok_or(class::ARG)
    }

    fn sets(&self) -> &'static [&'static [u8]] {
        if self.comms.dynamic.spares > 0 { &SETS } else { &SETS[..2] }
    }

    /// Ranks that the job has to take the place of others, in a program that it began with.
    pub fn spare_ranks(&self) -> Vec<u32> {
        let Ok(world) = self.comms.get_ref(COMM_WORLD) else { return Vec::new() };
        let members = world.group.members();
        let first = members.len().saturating_sub(self.comms.dynamic.spares as usize);
        members[first..].to_vec()
    }

    /// World ranks of a set's members.
    fn pset(&self, session: Handle, name: &[u8]) -> Res<Vec<u32>> {
        self.sessions.get(session)?;
        match self.sets().iter().position(|set| name.eq_ignore_ascii_case(set)) {
            Some(0) => Ok(self.comms.get(COMM_WORLD)?.group.members().to_vec()),
            Some(1) => Ok(vec![self.world().0]),
            Some(_) => Ok(self.spare_ranks()),
            None => Err(class::ARG),
        }
    }

    /// A new info object: `mpi_size`, the number of processes.
    pub fn session_pset_info(&mut self, session: Handle, name: &[u8]) -> Res<Handle> {
        let mut info = Info::default();
        info.set(b"mpi_size", self.pset(session, name)?.len().to_string().as_bytes());
        self.infos.insert(info)
    }

    pub fn group_from_pset(&mut self, session: Handle, name: &[u8]) -> Res<Handle> {
        let group = Group::new(self.pset(session, name)?, self.world().0);
        self.groups.insert(Rc::new(group))
    }

    pub fn session_set_errhandler(&mut self, session: Handle, eh: Handle) -> Res<()> {
        self.errhandler_check(ErrKind::Session, eh)?;
        self.sessions.get(session)?;
        self.errhandlers.acquire(eh)?;
        let before = std::mem::replace(&mut self.sessions.get_mut(session)?.errhandler, eh);
        self.errhandlers.release(before);
        Ok(())
    }

    /// The program has to free the handle.
    pub fn session_get_errhandler(&mut self, session: Handle) -> Res<Handle> {
        let eh = self.sessions.get(session)?.errhandler;
        self.errhandlers.acquire(eh)?;
        Ok(eh)
    }
}
