//! Gather, gatherv, scatter and scatterv: the root deals with each rank directly.

use std::rc::Rc;

use super::Ints;
use super::data::{Data, check_alias, check_buffer, copy, element, is_in_place};
use crate::comm::Comm;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

#[allow(clippy::too_many_arguments)]
impl Machine {
    /// # Safety
    /// The buffers are valid for the types, as MPI requires.
    pub unsafe fn gather(
        &mut self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        rbuf: *mut u8,
        rcount: i64,
        rdt: Handle,
        root: i32,
        comm: Handle,
    ) -> Res<()> {
        let (comm, tag) = self.start_collective(comm)?;
        let root = comm.root(root)?;
        if comm.rank != root {
            // SAFETY: the caller's promise.
            return unsafe { self.give(sbuf, scount, sdt, (root, tag), &comm) };
        }
        let (count, dt) = self.checked_type(rcount, rdt)?;
        check_buffer(rbuf, count, &dt)?;
        let inn = |rank: u32| {
            let index = i64::from(rank).wrapping_mul(rcount);
            Data::new(element(rbuf, index, &dt), count, &dt)
        };
        // SAFETY: the caller's promise.
        unsafe {
            let own = self.take_own(sbuf, scount, sdt, inn(root));
            own.and(self.collect(&comm, tag, &inn))
        }
    }

    /// # Safety
    /// The buffers are valid for the types, as MPI requires; at the root the arrays have an entry
    /// per rank.
    pub unsafe fn gatherv(
        &mut self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        rbuf: *mut u8,
        rcounts: Ints,
        displs: Ints,
        rdt: Handle,
        root: i32,
        comm: Handle,
    ) -> Res<()> {
        let (comm, tag) = self.start_collective(comm)?;
        let root = comm.root(root)?;
        if comm.rank != root {
            // SAFETY: the caller's promise.
            return unsafe { self.give(sbuf, scount, sdt, (root, tag), &comm) };
        }
        // SAFETY: the caller's promise.
        unsafe {
            rcounts.check_counts(comm.size())?;
            displs.check_displs()?;
            let (_, dt) = self.checked_type(0, rdt)?;
            let inn = |rank: u32| {
                Data::new(element(rbuf, displs.at(rank), &dt), rcounts.at(rank) as u64, &dt)
            };
            for rank in 0..comm.size() {
                check_buffer(rbuf, inn(rank).count, &dt)?;
            }
            let own = self.take_own(sbuf, scount, sdt, inn(root));
            own.and(self.collect(&comm, tag, &inn))
        }
    }

    /// A rank's part in a gather to another rank.
    unsafe fn give(
        &mut self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        (root, tag): (u32, i32),
        comm: &Rc<Comm>,
    ) -> Res<()> {
        let (count, dt) = self.checked_type(scount, sdt)?;
        check_buffer(sbuf, count, &dt)?;
        // SAFETY: the caller's promise.
        unsafe { self.send_to(comm, tag, Data::source(sbuf, count, &dt), root) }
    }

    /// The root's own part of a gather or scatter.
    unsafe fn take_own(
        &mut self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        target: Data,
    ) -> Res<()> {
        if is_in_place(sbuf) {
            return Ok(());
        }
        let (count, dt) = self.checked_type(scount, sdt)?;
        check_buffer(sbuf, count, &dt)?;
        let own = Data::source(sbuf, count, &dt);
        check_alias(sbuf, target.ptr, own.bytes())?;
        // SAFETY: the caller's promise.
        unsafe { copy(own, target) }
    }

    /// # Safety
    /// The buffers are valid for the types, as MPI requires.
    pub unsafe fn scatter(
        &mut self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        rbuf: *mut u8,
        rcount: i64,
        rdt: Handle,
        root: i32,
        comm: Handle,
    ) -> Res<()> {
        let (comm, tag) = self.start_collective(comm)?;
        let root = comm.root(root)?;
        if comm.rank != root {
            // SAFETY: the caller's promise.
            return unsafe { self.get_part(rbuf, rcount, rdt, (root, tag), &comm) };
        }
        let (count, dt) = self.checked_type(scount, sdt)?;
        check_buffer(sbuf, count, &dt)?;
        let out = |rank: u32| {
            let index = i64::from(rank).wrapping_mul(scount);
            Data::new(element(sbuf.cast_mut(), index, &dt), count, &dt)
        };
        // SAFETY: the caller's promise.
        unsafe {
            let own = self.put_own(out(root), rbuf, rcount, rdt);
            own.and(self.distribute(&comm, tag, &out))
        }
    }

    /// # Safety
    /// The buffers are valid for the types, as MPI requires; at the root the arrays have an entry
    /// per rank.
    pub unsafe fn scatterv(
        &mut self,
        sbuf: *const u8,
        scounts: Ints,
        displs: Ints,
        sdt: Handle,
        rbuf: *mut u8,
        rcount: i64,
        rdt: Handle,
        root: i32,
        comm: Handle,
    ) -> Res<()> {
        let (comm, tag) = self.start_collective(comm)?;
        let root = comm.root(root)?;
        if comm.rank != root {
            // SAFETY: the caller's promise.
            return unsafe { self.get_part(rbuf, rcount, rdt, (root, tag), &comm) };
        }
        // SAFETY: the caller's promise.
        unsafe {
            scounts.check_counts(comm.size())?;
            displs.check_displs()?;
            let (_, dt) = self.checked_type(0, sdt)?;
            let base = sbuf.cast_mut();
            let out = |rank: u32| {
                Data::new(element(base, displs.at(rank), &dt), scounts.at(rank) as u64, &dt)
            };
            for rank in 0..comm.size() {
                check_buffer(sbuf, out(rank).count, &dt)?;
            }
            let own = self.put_own(out(root), rbuf, rcount, rdt);
            own.and(self.distribute(&comm, tag, &out))
        }
    }

    /// A rank's part in a scatter from another rank.
    unsafe fn get_part(
        &mut self,
        rbuf: *mut u8,
        rcount: i64,
        rdt: Handle,
        (root, tag): (u32, i32),
        comm: &Rc<Comm>,
    ) -> Res<()> {
        let (count, dt) = self.checked_type(rcount, rdt)?;
        check_buffer(rbuf, count, &dt)?;
        // SAFETY: the caller's promise.
        unsafe { self.receive(comm, tag, Data::new(rbuf, count, &dt), root) }
    }

    /// The root's own part of a scatter.
    unsafe fn put_own(&mut self, own: Data, rbuf: *mut u8, rcount: i64, rdt: Handle) -> Res<()> {
        if is_in_place(rbuf) {
            return Ok(());
        }
        let (count, dt) = self.checked_type(rcount, rdt)?;
        check_buffer(rbuf, count, &dt)?;
        if own.ptr == rbuf && own.bytes() > 0 && !rbuf.is_null() {
            return Err(class::BUFFER);
        }
        // SAFETY: the caller's promise.
        unsafe { copy(own, Data::new(rbuf, count, &dt)) }
    }
}
