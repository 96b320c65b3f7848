//! Performance variables: listed, and read by handles of sessions.
//!
//! Kept true: whatever a handle takes note of is told by the door (`told`), so what a handle knows
//! in a replay is what it knew.

use std::ffi::{c_char, c_double, c_int, c_ulonglong, c_void};

use eyrie_channel::counters::Gauge;
use eyrie_core::datatype::predefined::{DOUBLE, INT, UNSIGNED_LONG_LONG};
use eyrie_core::handle::Handle;

use super::choices::{STATE, STATE_ABSENT, STATE_LIVE, STATE_REPEATS, handle_of};
use super::numbers::{self, gauge};
use super::pvar_table::{From, PVARS, Pvar};
use super::{Told, Tools, at, communicator, get, name_in, put, put_text, put_wanted};
use super::{told, tool_shims};
use crate::global;
use crate::repr::tools::{Bind, PvarClass, ToolError, is_all_handles};
use crate::repr::{CHandle, Datatype};

const SECOND_NS: f64 = 1e9;

/// A handle: of a variable that is a total, what it counted until it was stopped, and from where on
/// it counts since it was started.
pub struct PvarHandle {
    session: usize,
    pvar: &'static Pvar,
    comm: Option<Handle>,
    sum: u64,
    since: Option<u64>,
}

impl PvarHandle {
    /// What the variable itself is now.
    fn now(&self) -> Told<u64> {
        let From::Queue(queue) = self.pvar.from else { return told(|| value(self.pvar)) };
        let comm = self.comm.ok_or(ToolError::InvalidHandle)?;
        // Queues are the machine's own: no other thread may look.
        let mut m = global::outside().ok_or(ToolError::NotAccessible)?;
        m.enter();
        let length = m.queue_length(queue, comm);
        let told = length.and_then(|length| m.number_for_tool(length));
        m.leave();
        told.map_err(|_| ToolError::InvalidHandle)
    }

    /// What the handle has counted, or what there is.
    fn value(&self) -> Told<u64> {
        match (self.pvar.is_total(), self.since) {
            (false, _) => self.now(),
            (true, None) => Ok(self.sum),
            (true, Some(since)) => Ok(self.sum.wrapping_add(self.now()?.saturating_sub(since))),
        }
    }

    fn start(&mut self) -> Told<()> {
        self.total(ToolError::PvarNoStartStop)?;
        if self.since.is_none() {
            self.since = Some(self.now()?);
        }
        Ok(())
    }

    fn stop(&mut self) -> Told<()> {
        self.total(ToolError::PvarNoStartStop)?;
        self.sum = self.value()?;
        self.since = None;
        Ok(())
    }

    fn set(&mut self, sum: u64) -> Told<()> {
        self.total(ToolError::PvarNoWrite)?;
        self.sum = sum;
        if self.since.is_some() {
            self.since = Some(self.now()?);
        }
        Ok(())
    }

    /// Only what only grows can be changed.
    fn total(&self, or: ToolError) -> Told<()> {
        if self.pvar.is_total() { Ok(()) } else { Err(or) }
    }
}

/// What a variable that is bound to nothing is now, as a number or the bits of one.
fn value(pvar: &Pvar) -> u64 {
    match pvar.from {
        From::Gauge(of) | From::Time(of) => gauge(of),
        From::Fill => {
            let size = gauge(Gauge::LogSizeBytes);
            let fill = if size == 0 { 0.0 } else { gauge(Gauge::LogBytes) as f64 / size as f64 };
            fill.min(1.0).to_bits()
        }
        From::State => {
            let state = match (numbers::all().is_some(), gauge(Gauge::IsRepeating)) {
                (false, _) => STATE_ABSENT,
                (true, 0) => STATE_LIVE,
                (true, _) => STATE_REPEATS,
            };
            state as u64
        }
        From::Queue(_) => 0,
    }
}

fn datatype(pvar: &Pvar) -> Handle {
    match pvar.class {
        PvarClass::State => INT,
        PvarClass::Percentage | PvarClass::Timer => DOUBLE,
        _ => UNSIGNED_LONG_LONG,
    }
}

/// # Safety
/// `to` is null or has room for the variable.
unsafe fn store(pvar: &Pvar, to: *mut c_void, value: u64) -> Told<()> {
    // SAFETY: by the caller's word.
    unsafe {
        match pvar.class {
            PvarClass::State => put(to.cast::<c_int>(), value as c_int),
            PvarClass::Percentage => put(to.cast::<c_double>(), f64::from_bits(value)),
            PvarClass::Timer => put(to.cast::<c_double>(), value as f64 / SECOND_NS),
            _ => put(to.cast::<c_ulonglong>(), value),
        }
    }
}

/// What a handle of a total is set to.
///
/// # Safety
/// `from` is null or points to a value of the variable's type.
unsafe fn load(pvar: &Pvar, from: *const c_void) -> Told<u64> {
    // SAFETY: by the caller's word.
    unsafe {
        match pvar.class {
            PvarClass::Timer => {
                let seconds = get(from.cast::<c_double>())?;
                // What is no time becomes the nearest one.
                Ok((seconds * SECOND_NS) as u64)
            }
            _ => get(from.cast::<c_ulonglong>()),
        }
    }
}

impl Tools {
    fn session(&self, session: usize) -> Told<()> {
        if self.sessions.contains(&session) { Ok(()) } else { Err(ToolError::InvalidSession) }
    }

    /// One handle of a session.
    fn pvar(&mut self, session: usize, handle: usize) -> Told<&mut PvarHandle> {
        self.session(session)?;
        let found = self.pvars.get_mut(&handle).filter(|h| h.session == session);
        found.ok_or(ToolError::InvalidHandle)
    }

    /// Does something with one handle of a session, or with all of which that can be done.
    fn with_pvars(
        &mut self,
        session: usize,
        handle: usize,
        mut act: impl FnMut(&mut PvarHandle) -> Told<()>,
    ) -> Told<()> {
        if !is_all_handles(handle) {
            return act(self.pvar(session, handle)?);
        }
        self.session(session)?;
        let totals = self.pvars.values_mut().filter(|h| h.session == session);
        totals.filter(|h| h.pvar.is_total()).try_for_each(act)
    }
}

tool_shims! {
    fn PMPI_T_pvar_get_num (number: *mut c_int); |_tools| {
        put(number, PVARS.len() as c_int)?;
    }
    fn PMPI_T_pvar_get_info (index: c_int, name: *mut c_char, name_length: *mut c_int,
                             verbosity: *mut c_int, class: *mut c_int, kind: *mut Datatype,
                             choices: *mut usize, about: *mut c_char, about_length: *mut c_int,
                             bind: *mut c_int, readonly: *mut c_int, continuous: *mut c_int,
                             atomic: *mut c_int); |_tools| {
        let pvar = at(&PVARS, index)?;
        put_text(name, name_length, pvar.name);
        put_text(about, about_length, pvar.description);
        put_wanted(verbosity, pvar.verbosity.value());
        put_wanted(class, pvar.class.value());
        put_wanted(kind, Datatype::of(datatype(pvar)));
        let own = (pvar.class == PvarClass::State).then_some(&STATE);
        put_wanted(choices, handle_of(own));
        put_wanted(bind, if pvar.is_bound() { Bind::Comm } else { Bind::Nothing }.value());
        put_wanted(readonly, (!pvar.is_total()).into());
        put_wanted(continuous, (!pvar.is_total()).into());
        put_wanted(atomic, pvar.is_total().into());
    }
    fn PMPI_T_pvar_get_index (name: *const c_char, class: c_int, index: *mut c_int); |_tools| {
        let name = name_in(name)?;
        let is_it = |v: &Pvar| v.name.as_bytes() == name && v.class.value() == class;
        put(index, PVARS.iter().position(is_it).ok_or(ToolError::InvalidName)? as c_int)?;
    }
    fn PMPI_T_pvar_session_create (session: *mut usize); |tools| {
        let id = tools.id();
        put(session, id)?;
        tools.sessions.insert(id);
    }
    fn PMPI_T_pvar_session_free (session: *mut usize); |tools| {
        let id = get(session)?;
        tools.session(id)?;
        tools.sessions.remove(&id);
        tools.pvars.retain(|_, handle| handle.session != id);
        put(session, 0)?;
    }
    fn PMPI_T_pvar_handle_alloc (session: usize, index: c_int, object: *mut c_void,
                                 handle: *mut usize, count: *mut c_int); |tools| {
        tools.session(session)?;
        let pvar = at(&PVARS, index)?;
        let comm = if pvar.is_bound() { Some(communicator(object.cast())?) } else { None };
        let id = tools.id();
        put(handle, id)?;
        put_wanted(count, 1);
        tools.pvars.insert(id, PvarHandle { session, pvar, comm, sum: 0, since: None });
    }
    fn PMPI_T_pvar_handle_free (session: usize, handle: *mut usize); |tools| {
        let id = get(handle)?;
        tools.pvar(session, id)?;
        tools.pvars.remove(&id);
        put(handle, 0)?;
    }
    fn PMPI_T_pvar_start (session: usize, handle: usize); |tools| {
        tools.with_pvars(session, handle, PvarHandle::start)?;
    }
    fn PMPI_T_pvar_stop (session: usize, handle: usize); |tools| {
        tools.with_pvars(session, handle, PvarHandle::stop)?;
    }
    fn PMPI_T_pvar_reset (session: usize, handle: usize); |tools| {
        tools.with_pvars(session, handle, |h| h.set(0))?;
    }
    fn PMPI_T_pvar_read (session: usize, handle: usize, to: *mut c_void); |tools| {
        let handle = tools.pvar(session, handle)?;
        store(handle.pvar, to, handle.value()?)?;
    }
    fn PMPI_T_pvar_readreset (session: usize, handle: usize, to: *mut c_void); |tools| {
        let handle = tools.pvar(session, handle)?;
        handle.total(ToolError::PvarNoWrite)?;
        let value = handle.value()?;
        // One look for both: nothing falls in between.
        if let Some(since) = &mut handle.since {
            *since = since.wrapping_add(value.wrapping_sub(handle.sum));
        }
        handle.sum = 0;
        store(handle.pvar, to, value)?;
    }
    fn PMPI_T_pvar_write (session: usize, handle: usize, from: *const c_void); |tools| {
        let handle = tools.pvar(session, handle)?;
        handle.total(ToolError::PvarNoWrite)?;
        let value = load(handle.pvar, from)?;
        handle.set(value)?;
    }
}
