//! Completion of requests and what statuses tell (MPI 5.0 sections 3.7 and 3.2.5).

use std::ffi::c_int;

use eyrie_core::consts::UNDEFINED;
use eyrie_core::error::class;
use eyrie_core::handle::Handle;
use eyrie_core::machine::Machine;
use eyrie_core::status::Status as CoreStatus;

use crate::arg::{array_mut, get, handles, len, put, put_handles, put_num, put_statuses};
use crate::repr::*;
use crate::shim::{Fail, shims};

/// The communicator whose handler takes the errors of a call on several requests.
fn first_comm(m: &Machine, requests: &[Handle]) -> Handle {
    requests.first().map_or(Handle(0), |r| m.request_comm(*r))
}

fn statuses_for(at: *const Status, n: usize) -> Vec<CoreStatus> {
    if is_status_ignore(at) { Vec::new() } else { vec![CoreStatus::EMPTY; n] }
}

/// Writes what Waitsome and Testsome found; returns the error for the call.
///
/// # Safety
/// The arrays are as long as the standard asks for.
unsafe fn put_some(
    found: Option<Vec<(usize, CoreStatus)>>,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> eyrie_core::error::Res<()> {
    let Some(found) = found else {
        // SAFETY: `outcount` points to an int, by MPI's contract.
        return unsafe { put(outcount, UNDEFINED) };
    };
    let failed = found.iter().any(|(_, s)| s.error != 0);
    // SAFETY: the arrays have room for as many entries as there are requests.
    unsafe {
        put(outcount, found.len() as c_int)?;
        for (at, (index, _)) in array_mut(indices, found.len())?.iter_mut().zip(&found) {
            *at = *index as c_int;
        }
        let list: Vec<CoreStatus> = found.iter().map(|(_, s)| *s).collect();
        put_statuses(statuses, &list, failed);
    }
    if failed { Err(class::IN_STATUS) } else { Ok(()) }
}

shims! {
    fn PMPI_Wait (request: *mut Request, status: *mut Status); |m| {
        let mut h = get(request)?.core();
        let on = m.request_comm(h);
        let result = m.wait(&mut h);
        put(request, Request::of(h))?;
        put_status(status, &result.map_err(Fail::on(on))?, false);
    }
    fn PMPI_Test (request: *mut Request, flag: *mut c_int, status: *mut Status); |m| {
        let mut h = get(request)?.core();
        let on = m.request_comm(h);
        let result = m.test(&mut h);
        put(request, Request::of(h))?;
        let done = result.map_err(Fail::on(on))?;
        put(flag, done.is_some().into())?;
        if let Some(s) = done {
            put_status(status, &s, false);
        }
    }
    fn PMPI_Waitall (count: c_int, requests: *mut Request, statuses: *mut Status); |m| {
        let n = len(count)?;
        let mut list = handles(requests, n)?;
        let mut found = statuses_for(statuses, n);
        let on = first_comm(m, &list);
        let result = m.waitall(&mut list, &mut found);
        put_handles(requests, &list);
        put_statuses(statuses, &found, result == Err(class::IN_STATUS));
        result.map_err(Fail::on(on))?;
    }
    fn PMPI_Testall (count: c_int, requests: *mut Request, flag: *mut c_int,
                     statuses: *mut Status); |m| {
        let n = len(count)?;
        let mut list = handles(requests, n)?;
        let mut found = statuses_for(statuses, n);
        let on = first_comm(m, &list);
        let result = m.testall(&mut list, &mut found);
        put_handles(requests, &list);
        put(flag, matches!(result, Ok(true) | Err(class::IN_STATUS)).into())?;
        match result {
            Ok(true) => put_statuses(statuses, &found, false),
            Err(class::IN_STATUS) => put_statuses(statuses, &found, true),
            _ => {}
        }
        result.map_err(Fail::on(on))?;
    }
    fn PMPI_Waitany (count: c_int, requests: *mut Request, index: *mut c_int,
                     status: *mut Status); |m| {
        let n = len(count)?;
        let mut list = handles(requests, n)?;
        let on = first_comm(m, &list);
        let result = m.waitany(&mut list);
        put_handles(requests, &list);
        match result.map_err(Fail::on(on))? {
            Some((i, s, error)) => {
                put(index, i as c_int)?;
                put_status(status, &s, false);
                error.map_or(Ok(()), Err).map_err(Fail::on(on))?;
            }
            None => {
                put(index, UNDEFINED)?;
                put_status(status, &CoreStatus::EMPTY, false);
            }
        }
    }
    fn PMPI_Testany (count: c_int, requests: *mut Request, index: *mut c_int, flag: *mut c_int,
                     status: *mut Status); |m| {
        let n = len(count)?;
        let mut list = handles(requests, n)?;
        let on = first_comm(m, &list);
        let result = m.testany(&mut list);
        put_handles(requests, &list);
        match result.map_err(Fail::on(on))? {
            Some(Some((i, s, error))) => {
                put(index, i as c_int)?;
                put(flag, 1)?;
                put_status(status, &s, false);
                error.map_or(Ok(()), Err).map_err(Fail::on(on))?;
            }
            Some(None) => {
                put(index, UNDEFINED)?;
                put(flag, 1)?;
                put_status(status, &CoreStatus::EMPTY, false);
            }
            None => {
                put(index, UNDEFINED)?;
                put(flag, 0)?;
            }
        }
    }
    fn PMPI_Waitsome (incount: c_int, requests: *mut Request, outcount: *mut c_int,
                      indices: *mut c_int, statuses: *mut Status); |m| {
        let n = len(incount)?;
        let mut list = handles(requests, n)?;
        let on = first_comm(m, &list);
        let result = m.waitsome(&mut list);
        put_handles(requests, &list);
        let found = result.map_err(Fail::on(on))?;
        put_some(found, outcount, indices, statuses).map_err(Fail::on(on))?;
    }
    fn PMPI_Testsome (incount: c_int, requests: *mut Request, outcount: *mut c_int,
                      indices: *mut c_int, statuses: *mut Status); |m| {
        let n = len(incount)?;
        let mut list = handles(requests, n)?;
        let on = first_comm(m, &list);
        let result = m.testsome(&mut list);
        put_handles(requests, &list);
        let found = result.map_err(Fail::on(on))?;
        put_some(found, outcount, indices, statuses).map_err(Fail::on(on))?;
    }
    fn PMPI_Request_get_status (request: Request, flag: *mut c_int, status: *mut Status); |m| {
        let done = m.request_get_status(request.core())?;
        put(flag, done.is_some().into())?;
        if let Some(s) = done {
            put_status(status, &s, false);
        }
    }
    fn PMPI_Request_get_status_all (count: c_int, requests: *const Request, flag: *mut c_int,
                                    statuses: *mut Status); |m| {
        let list = handles(requests, len(count)?)?;
        let mut found = Vec::with_capacity(list.len());
        for h in &list {
            let Some(s) = get_status(m, *h)? else { break };
            found.push(s);
        }
        put(flag, (found.len() == list.len()).into())?;
        if found.len() == list.len() {
            put_statuses(statuses, &found, false);
        }
    }
    fn PMPI_Request_get_status_any (count: c_int, requests: *const Request, index: *mut c_int,
                                    flag: *mut c_int, status: *mut Status); |m| {
        let list = handles(requests, len(count)?)?;
        let found = first_complete(m, &list)?;
        put(index, found.map_or(UNDEFINED, |(i, _)| i as c_int))?;
        let none_active = found.is_none() && active(m, &list)?.is_empty();
        put(flag, (found.is_some() || none_active).into())?;
        if found.is_some() || none_active {
            put_status(status, &found.map_or(CoreStatus::EMPTY, |(_, s)| s), false);
        }
    }
    fn PMPI_Request_get_status_some (incount: c_int, requests: *const Request,
                                     outcount: *mut c_int, indices: *mut c_int,
                                     statuses: *mut Status); |m| {
        let list = handles(requests, len(incount)?)?;
        let active = active(m, &list)?;
        let mut found = Vec::new();
        for i in &active {
            if let Some(s) = get_status(m, list[*i])? {
                found.push((*i, s));
            }
        }
        put_some((!active.is_empty()).then_some(found), outcount, indices, statuses)?;
    }
    fn PMPI_Request_free (request: *mut Request); |m| {
        let mut h = get(request)?.core();
        let on = m.request_comm(h);
        let result = m.request_free(&mut h);
        put(request, Request::of(h))?;
        result.map_err(Fail::on(on))?;
    }
    fn PMPI_Cancel (request: *mut Request); |m| {
        let h = get(request)?.core();
        let on = m.request_comm(h);
        m.cancel(h).map_err(Fail::on(on))?;
    }
    fn PMPI_Test_cancelled (status: *const Status, flag: *mut c_int); |m| {
        put(flag, get(status)?.load().cancelled.into())?;
    }
    fn PMPI_Get_count | PMPI_Get_count_c (status: *const Status, datatype: Datatype,
                                          count: *mut Count); |m| {
        let bytes = get(status)?.load().bytes;
        put_num(count, m.types.get_ref(datatype.core())?.count_in(bytes))?;
    }
    fn PMPI_Get_elements | PMPI_Get_elements_c (status: *const Status, datatype: Datatype,
                                                count: *mut Count); |m| {
        let bytes = get(status)?.load().bytes;
        put_num(count, m.types.get_ref(datatype.core())?.elements_in(bytes))?;
    }
    fn PMPI_Get_elements_x (status: *const Status, datatype: Datatype,
                            count: *mut LargeCount); |m| {
        let bytes = get(status)?.load().bytes;
        put_num(count, m.types.get_ref(datatype.core())?.elements_in(bytes))?;
    }
    fn PMPI_Status_set_cancelled (status: *mut Status, flag: c_int); |m| {
        let mut s = get(status)?;
        let error = s.error();
        s.store(&CoreStatus { cancelled: flag != 0, ..s.load() });
        s.set_error(error);
        put(status, s)?;
    }
    fn PMPI_Status_set_elements | PMPI_Status_set_elements_c (
        status: *mut Status, datatype: Datatype, count: Count); |m| {
        set_elements(m, status, datatype, count.wide())?;
    }
    fn PMPI_Status_set_elements_x (status: *mut Status, datatype: Datatype,
                                   count: LargeCount); |m| {
        set_elements(m, status, datatype, count)?;
    }
    fn PMPI_Status_get_source (status: *const Status, source: *mut c_int); |m| {
        put(source, get(status)?.source())?;
    }
    fn PMPI_Status_get_tag (status: *const Status, tag: *mut c_int); |m| {
        put(tag, get(status)?.tag())?;
    }
    fn PMPI_Status_get_error (status: *const Status, error: *mut c_int); |m| {
        put(error, get(status)?.error())?;
    }
    fn PMPI_Status_set_source (status: *mut Status, source: c_int); |m| {
        if status.is_null() { Err(class::ARG)? }
        (*status).set_source(source);
    }
    fn PMPI_Status_set_tag (status: *mut Status, tag: c_int); |m| {
        if status.is_null() { Err(class::ARG)? }
        (*status).set_tag(tag);
    }
    fn PMPI_Status_set_error (status: *mut Status, error: c_int); |m| {
        if status.is_null() { Err(class::ARG)? }
        (*status).set_error(error);
    }
}

/// The status of a request, if it is complete; it stays.
fn get_status(m: &mut Machine, h: Handle) -> Result<Option<CoreStatus>, Fail> {
    m.request_get_status(h).map_err(Fail::on(m.request_comm(h)))
}

/// Which requests are active.
fn active(m: &Machine, list: &[Handle]) -> Result<Vec<usize>, Fail> {
    let mut found = Vec::new();
    for (i, h) in list.iter().enumerate() {
        if m.active(*h)? {
            found.push(i);
        }
    }
    Ok(found)
}

/// The first of the active requests that is complete; it stays.
fn first_complete(m: &mut Machine, list: &[Handle]) -> Result<Option<(usize, CoreStatus)>, Fail> {
    for i in active(m, list)? {
        if let Some(s) = get_status(m, list[i])? {
            return Ok(Some((i, s)));
        }
    }
    Ok(None)
}

/// Sets the length of a status to `count` elements of the type.
///
/// # Safety
/// `status` is null or points to a status.
unsafe fn set_elements(
    m: &Machine,
    status: *mut Status,
    datatype: Datatype,
    count: i64,
) -> eyrie_core::error::Res<()> {
    // SAFETY: by the caller's word.
    let mut s = unsafe { get(status) }?;
    let size = m.types.get_ref(datatype.core())?.size;
    let count = u64::try_from(count).map_err(|_| class::COUNT)?;
    let bytes = size.checked_mul(count).ok_or(class::COUNT)?;
    let error = s.error();
    s.store(&CoreStatus { bytes, ..s.load() });
    s.set_error(error);
    // SAFETY: by the caller's word.
    unsafe { put(status, s) }
}
