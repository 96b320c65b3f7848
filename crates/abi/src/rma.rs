//! One-sided communication (MPI 5.0 chapter 12).

use std::ffi::{c_char, c_int};

use eyrie_core::consts::{PROC_NULL, WIN_NULL};
use eyrie_core::error::{Class, Res, class};
use eyrie_core::rma::{Flavor, Memory, Operand, Target, Told};

use crate::arg::{bytes, check_buf, get, put, put_text};
use crate::errhandler::call;
use crate::repr::*;
use crate::shim::shims;

fn operand(buf: ConstBuf, count: i64, datatype: Datatype) -> Res<Operand> {
    let dt = datatype.core();
    check_buf(buf, count, dt)?;
    Ok(Operand { buf: buf.cast_mut().cast(), count, dt })
}

fn target(rank: c_int, disp: Aint, count: i64, datatype: Datatype) -> Target {
    Target { rank: rank_in(rank), disp: disp as i64, count, dt: datatype.core() }
}

fn memory(base: Buf, bytes: Aint, unit: i64) -> Res<Memory> {
    let bytes = u64::try_from(bytes).map_err(|_| class::SIZE)?;
    Ok(Memory { base: base.cast(), bytes, unit: i32::try_from(unit).map_err(|_| class::DISP)? })
}

// Windows.
shims! {
    fn PMPI_Win_create | PMPI_Win_create_c (base: Buf, size: Aint, unit: Disp, info: Info,
                                            comm: Comm, win: *mut Win) on comm; |m| {
        let memory = memory(base, size, unit.wide())?;
        put(win, Win::of(m.win_create(Flavor::Create, memory, info.core(), comm.core())?))?;
    }
    fn PMPI_Win_create_dynamic (info: Info, comm: Comm, win: *mut Win) on comm; |m| {
        let memory = memory(std::ptr::null_mut(), 0, 1)?;
        put(win, Win::of(m.win_create(Flavor::Dynamic, memory, info.core(), comm.core())?))?;
    }
    fn PMPI_Win_allocate | PMPI_Win_allocate_c (size: Aint, unit: Disp, info: Info, comm: Comm,
                                                base: Buf, win: *mut Win) on comm; |m| {
        let own = memory(base, size, unit.wide())?;
        let made =
            m.win_allocate(Flavor::Allocate, own.bytes, own.unit, info.core(), comm.core())?;
        put(base.cast::<*mut u8>(), made.0)?;
        put(win, Win::of(made.1))?;
    }
    fn PMPI_Win_allocate_shared | PMPI_Win_allocate_shared_c (
        size: Aint, unit: Disp, info: Info, comm: Comm, base: Buf, win: *mut Win) on comm; |m| {
        let own = memory(base, size, unit.wide())?;
        let made =
            m.win_allocate(Flavor::Shared, own.bytes, own.unit, info.core(), comm.core())?;
        put(base.cast::<*mut u8>(), made.0)?;
        put(win, Win::of(made.1))?;
    }
    fn PMPI_Win_shared_query | PMPI_Win_shared_query_c (
        win: Win, rank: c_int, size: *mut Aint, unit: *mut Disp, base: Buf) on win; |m| {
        let rank = rank_in(rank);
        let rank = match rank {
            PROC_NULL => None,
            _ => Some(u32::try_from(rank).map_err(|_| class::RANK)?),
        };
        let shown = m.win_shared_query(win.core(), rank)?;
        put(size, shown.bytes as Aint)?;
        put(unit, Disp::narrow(shown.unit.into()).ok_or(class::VALUE_TOO_LARGE)?)?;
        put(base.cast::<*mut u8>(), shown.base)?;
    }
    fn PMPI_Win_free (win: *mut Win) on win_at(win); |m| {
        let mut h = get(win)?.core();
        m.win_free(&mut h)?;
        put(win, Win::of(h))?;
    }
    fn PMPI_Win_attach (win: Win, base: Buf, size: Aint) on win; |m| {
        let size = u64::try_from(size).map_err(|_| class::SIZE)?;
        m.win_attach(win.core(), base.expose_provenance(), size)?;
    }
    fn PMPI_Win_detach (win: Win, base: ConstBuf) on win; |m| {
        m.win_detach(win.core(), base as usize)?;
    }
    fn PMPI_Win_get_group (win: Win, group: *mut Group) on win; |m| {
        put(group, Group::of(m.win_group(win.core())?))?;
    }
    fn PMPI_Win_set_name (win: Win, name: *const c_char) on win; |m| {
        let name = bytes(name)?;
        m.win_set_name(win.core(), &name[..name.len().min(MAX_OBJECT_NAME_BYTES - 1)])?;
    }
    fn PMPI_Win_get_name (win: Win, name: *mut c_char, length: *mut c_int) on win; |m| {
        let text = m.win_get_name(win.core())?;
        put(length, put_text(name, MAX_OBJECT_NAME_BYTES, &text)?)?;
    }
    fn PMPI_Win_set_info (win: Win, info: Info) on win; |m| {
        m.win_set_info(win.core(), info.core())?;
    }
    fn PMPI_Win_get_info (win: Win, info: *mut Info) on win; |m| {
        put(info, Info::of(m.win_get_info(win.core())?))?;
    }
    fn PMPI_Win_set_errhandler (win: Win, eh: Errhandler) on win; |m| {
        m.win_set_errhandler(win.core(), eh.core())?;
    }
    fn PMPI_Win_get_errhandler (win: Win, eh: *mut Errhandler) on win; |m| {
        put(eh, Errhandler::of(m.win_get_errhandler(win.core())?))?;
    }
    fn PMPI_Win_call_errhandler (win: Win, code: c_int) on win; |m| {
        if win.core() == WIN_NULL {
            return Err(class::WIN.into());
        }
        m.win_get_name(win.core())?;
        let code = code_in(code);
        call("PMPI_Win_call_errhandler", m.raise(win.core(), Class(code)), code);
    }
}

// Epochs.
shims! {
    fn PMPI_Win_fence (assert: c_int, win: Win) on win; |m| {
        m.win_fence(win.core(), assert_in(assert))?;
    }
    fn PMPI_Win_post (group: Group, _assert: c_int, win: Win) on win; |m| {
        m.win_post(win.core(), group.core())?;
    }
    fn PMPI_Win_start (group: Group, _assert: c_int, win: Win) on win; |m| {
        m.win_start(win.core(), group.core())?;
    }
    fn PMPI_Win_complete (win: Win) on win; |m| {
        m.win_complete(win.core())?;
    }
    fn PMPI_Win_wait (win: Win) on win; |m| {
        m.win_wait(win.core())?;
    }
    fn PMPI_Win_test (win: Win, flag: *mut c_int) on win; |m| {
        put(flag, m.win_test(win.core())?.into())?;
    }
    fn PMPI_Win_lock (kind: c_int, rank: c_int, assert: c_int, win: Win) on win; |m| {
        let exclusive = match kind {
            LOCK_EXCLUSIVE => true,
            LOCK_SHARED => false,
            _ => Err(class::LOCKTYPE)?,
        };
        if rank_in(rank) != PROC_NULL {
            m.win_lock(win.core(), exclusive, rank_in(rank), assert_in(assert))?;
        }
    }
    fn PMPI_Win_unlock (rank: c_int, win: Win) on win; |m| {
        if rank_in(rank) != PROC_NULL {
            m.win_unlock(win.core(), rank_in(rank))?;
        }
    }
    fn PMPI_Win_lock_all (assert: c_int, win: Win) on win; |m| {
        m.win_lock_all(win.core(), assert_in(assert))?;
    }
    fn PMPI_Win_unlock_all (win: Win) on win; |m| {
        m.win_unlock_all(win.core())?;
    }
    fn PMPI_Win_flush (rank: c_int, win: Win) on win; |m| {
        if rank_in(rank) != PROC_NULL {
            m.win_flush(win.core(), Some(rank_in(rank)))?;
        }
    }
    fn PMPI_Win_flush_all (win: Win) on win; |m| {
        m.win_flush(win.core(), None)?;
    }
    fn PMPI_Win_flush_local (rank: c_int, win: Win) on win; |m| {
        if rank_in(rank) != PROC_NULL {
            m.win_flush_local(win.core(), Some(rank_in(rank)))?;
        }
    }
    fn PMPI_Win_flush_local_all (win: Win) on win; |m| {
        m.win_flush_local(win.core(), None)?;
    }
    fn PMPI_Win_sync (win: Win) on win; |m| {
        m.win_sync(win.core())?;
    }
}

// Data.
shims! {
    fn PMPI_Put | PMPI_Put_c (
        buf: ConstBuf, count: Count, datatype: Datatype, rank: c_int, disp: Aint, tcount: Count,
        ttype: Datatype, win: Win) on win; |m| {
        let from = operand(buf, count.wide(), datatype)?;
        m.rma_put(win.core(), from, target(rank, disp, tcount.wide(), ttype))?;
    }
    fn PMPI_Rput | PMPI_Rput_c (
        buf: ConstBuf, count: Count, datatype: Datatype, rank: c_int, disp: Aint, tcount: Count,
        ttype: Datatype, win: Win, request: *mut Request) on win; |m| {
        let from = operand(buf, count.wide(), datatype)?;
        m.rma_put(win.core(), from, target(rank, disp, tcount.wide(), ttype))?;
        put(request, Request::of(m.rma_done(Told::Yes)?))?;
    }
    fn PMPI_Get | PMPI_Get_c (
        buf: Buf, count: Count, datatype: Datatype, rank: c_int, disp: Aint, tcount: Count,
        ttype: Datatype, win: Win) on win; |m| {
        let into = operand(buf, count.wide(), datatype)?;
        m.rma_get(win.core(), into, target(rank, disp, tcount.wide(), ttype), Told::No)?;
    }
    fn PMPI_Rget | PMPI_Rget_c (
        buf: Buf, count: Count, datatype: Datatype, rank: c_int, disp: Aint, tcount: Count,
        ttype: Datatype, win: Win, request: *mut Request) on win; |m| {
        let into = operand(buf, count.wide(), datatype)?;
        let from = target(rank, disp, tcount.wide(), ttype);
        put(request, Request::of(m.rma_get(win.core(), into, from, Told::Yes)?))?;
    }
    fn PMPI_Accumulate | PMPI_Accumulate_c (
        buf: ConstBuf, count: Count, datatype: Datatype, rank: c_int, disp: Aint, tcount: Count,
        ttype: Datatype, op: Op, win: Win) on win; |m| {
        let from = operand(buf, count.wide(), datatype)?;
        m.rma_accumulate(win.core(), from, target(rank, disp, tcount.wide(), ttype), op.core())?;
    }
    fn PMPI_Raccumulate | PMPI_Raccumulate_c (
        buf: ConstBuf, count: Count, datatype: Datatype, rank: c_int, disp: Aint, tcount: Count,
        ttype: Datatype, op: Op, win: Win, request: *mut Request) on win; |m| {
        let from = operand(buf, count.wide(), datatype)?;
        m.rma_accumulate(win.core(), from, target(rank, disp, tcount.wide(), ttype), op.core())?;
        put(request, Request::of(m.rma_done(Told::Yes)?))?;
    }
    fn PMPI_Get_accumulate | PMPI_Get_accumulate_c (
        buf: ConstBuf, count: Count, datatype: Datatype, result: Buf, rcount: Count,
        rtype: Datatype, rank: c_int, disp: Aint, tcount: Count, ttype: Datatype, op: Op,
        win: Win) on win; |m| {
        let from = Operand { buf: buf.cast_mut().cast(), count: count.wide(), dt: datatype.core() };
        let into = operand(result, rcount.wide(), rtype)?;
        let to = target(rank, disp, tcount.wide(), ttype);
        m.rma_get_accumulate(win.core(), from, into, to, op.core(), Told::No)?;
    }
    fn PMPI_Rget_accumulate | PMPI_Rget_accumulate_c (
        buf: ConstBuf, count: Count, datatype: Datatype, result: Buf, rcount: Count,
        rtype: Datatype, rank: c_int, disp: Aint, tcount: Count, ttype: Datatype, op: Op,
        win: Win, request: *mut Request) on win; |m| {
        let from = Operand { buf: buf.cast_mut().cast(), count: count.wide(), dt: datatype.core() };
        let into = operand(result, rcount.wide(), rtype)?;
        let to = target(rank, disp, tcount.wide(), ttype);
        let req = m.rma_get_accumulate(win.core(), from, into, to, op.core(), Told::Yes)?;
        put(request, Request::of(req))?;
    }
    fn PMPI_Fetch_and_op (buf: ConstBuf, result: Buf, datatype: Datatype, rank: c_int, disp: Aint,
                          op: Op, win: Win) on win; |m| {
        let from = Operand { buf: buf.cast_mut().cast(), count: 1, dt: datatype.core() };
        let into = operand(result, 1, datatype)?;
        let to = target(rank, disp, 1, datatype);
        m.rma_get_accumulate(win.core(), from, into, to, op.core(), Told::No)?;
    }
    fn PMPI_Compare_and_swap (new: ConstBuf, compare: ConstBuf, result: Buf, datatype: Datatype,
                              rank: c_int, disp: Aint, win: Win) on win; |m| {
        let to = target(rank, disp, 1, datatype);
        let three = (new.cast(), compare.cast(), result.cast());
        m.rma_compare_and_swap(win.core(), three, to)?;
    }
}

/// The window at an address, for the choice of the error handler.
fn win_at(at: *const Win) -> Win {
    // SAFETY: null or the program's variable, by MPI's contract.
    unsafe { get(at) }.unwrap_or(Win::of(WIN_NULL))
}
