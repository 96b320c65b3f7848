//! Sessions and sets of processes (MPI 5.0 section 11.3).

use std::ffi::{c_char, c_int};

use eyrie_core::consts::{ERRORS_RETURN, INFO_NULL, THREAD_FUNNELED, THREAD_MULTIPLE};
use eyrie_core::consts::{THREAD_SERIALIZED, THREAD_SINGLE};
use eyrie_core::error::{Class, Res, class};

use crate::arg::{bytes, get, put, put_text};
use crate::errhandler::call;
use crate::global::{self, lifetime};
use crate::repr::*;
use crate::shim::{fail, shims};
use crate::threads::Inside;

/// Thread levels as `thread_level` names them.
const LEVELS: [(&str, c_int); 4] = [
    ("MPI_THREAD_SINGLE", THREAD_SINGLE),
    ("MPI_THREAD_FUNNELED", THREAD_FUNNELED),
    ("MPI_THREAD_SERIALIZED", THREAD_SERIALIZED),
    ("MPI_THREAD_MULTIPLE", THREAD_MULTIPLE),
];

/// The level that an info object asks for.
fn level_asked(info: Info) -> Res<c_int> {
    if info.core() == INFO_NULL {
        return Ok(THREAD_SINGLE);
    }
    let _inside = Inside::enter();
    let asked = global::infos().get(info.core())?.get(b"thread_level");
    let known = |name: &[u8]| LEVELS.iter().find(|(n, _)| n.as_bytes() == name);
    Ok(asked.and_then(known).map_or(THREAD_SINGLE, |(_, level)| *level))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Session_init(
    info: Info,
    errhandler: Errhandler,
    session: *mut Session,
) -> c_int {
    const NAME: &str = "PMPI_Session_init";
    let level = match level_asked(info) {
        Ok(asked) => lifetime::start_session(NAME, asked),
        // Before the start nobody handles errors.
        Err(e) => return code_out(e.0),
    };
    let inside = Inside::enter();
    let m = global::machine(NAME);
    m.enter();
    m.called(NAME);
    let name = LEVELS.iter().find(|(_, l)| *l == level).map_or("", |(name, _)| name);
    let made = m.session_init(name.as_bytes(), errhandler.core());
    m.leave();
    drop(inside);
    // SAFETY: null or the program's variable, by MPI's contract.
    let result = made.and_then(|h| unsafe { put(session, Session::of(h)) });
    match result {
        Ok(()) => 0,
        Err(e) if errhandler.core() == ERRORS_RETURN => code_out(e.0),
        Err(e) => fail(NAME, e.into(), eyrie_core::handle::Handle(0), &[]),
    }
}

shims! {
    fn PMPI_Session_finalize (session: *mut Session) on session_at(session); |m| {
        let mut h = get(session)?.core();
        m.session_finalize(&mut h)?;
        put(session, Session::of(h))?;
    }
    fn PMPI_Session_get_info (session: Session, info: *mut Info) on session; |m| {
        put(info, Info::of(m.session_get_info(session.core())?))?;
    }
    fn PMPI_Session_get_num_psets (session: Session, info: Info, number: *mut c_int)
        on session; |m| {
        m.infos.get_optional(info.core())?;
        put(number, m.session_num_psets(session.core())?)?;
    }
    // A length of 0 asks for the length, terminator included.
    fn PMPI_Session_get_nth_pset (session: Session, info: Info, n: c_int, length: *mut c_int,
                                  name: *mut c_char) on session; |m| {
        m.infos.get_optional(info.core())?;
        let set = m.session_nth_pset(session.core(), n)?;
        let room = usize::try_from(get(length)?).map_err(|_| class::ARG)?;
        if room > 0 {
            put_text(name, room, set)?;
        }
        put(length, set.len() as c_int + 1)?;
    }
    fn PMPI_Session_get_pset_info (session: Session, name: *const c_char, info: *mut Info)
        on session; |m| {
        put(info, Info::of(m.session_pset_info(session.core(), bytes(name)?)?))?;
    }
    fn PMPI_Group_from_session_pset (session: Session, name: *const c_char, group: *mut Group)
        on session; |m| {
        put(group, Group::of(m.group_from_pset(session.core(), bytes(name)?)?))?;
    }
    fn PMPI_Session_set_errhandler (session: Session, eh: Errhandler) on session; |m| {
        m.session_set_errhandler(session.core(), eh.core())?;
    }
    fn PMPI_Session_get_errhandler (session: Session, eh: *mut Errhandler) on session; |m| {
        put(eh, Errhandler::of(m.session_get_errhandler(session.core())?))?;
    }
    fn PMPI_Session_call_errhandler (session: Session, code: c_int) on session; |m| {
        m.sessions.get(session.core())?;
        let code = code_in(code);
        call("PMPI_Session_call_errhandler", m.raise(session.core(), Class(code)), code);
    }
}

/// The session at an address, for the choice of the error handler.
fn session_at(at: *const Session) -> Session {
    // SAFETY: null or the program's variable, by MPI's contract.
    unsafe { get(at) }.unwrap_or(Session::of(eyrie_core::consts::SESSION_NULL))
}
