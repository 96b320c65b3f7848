//! Gather, gatherv, scatter and scatterv: the root deals with each rank directly.

use std::rc::Rc;

use super::Ints;
use super::data::{Data, check_alias, check_block, check_buffer, copy, element, is_in_place};
use super::{Block, Blocks, How, Layout};
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::Res;
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
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.gather_begun(
                    How::Now,
                    Block { buf: sbuf, count: scount, dt: sdt },
                    Blocks { buf: rbuf, layout: Layout::Even(rcount, rdt) },
                    root,
                    handle,
                )
            };
            return self.in_one_call(begun);
        }
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
            let own = self.own_source(sbuf, scount, sdt, inn(root))?;
            self.begin_collective(&comm, tag)?;
            let own =
                own.map_or(Ok(()), |(count, dt)| copy(Data::source(sbuf, count, &dt), inn(root)));
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
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.gather_begun(
                    How::Now,
                    Block { buf: sbuf, count: scount, dt: sdt },
                    Blocks { buf: rbuf, layout: Layout::Varied(rcounts, displs, rdt) },
                    root,
                    handle,
                )
            };
            return self.in_one_call(begun);
        }
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
                check_block(rbuf, inn(rank))?;
            }
            let own = self.own_source(sbuf, scount, sdt, inn(root))?;
            self.begin_collective(&comm, tag)?;
            let own =
                own.map_or(Ok(()), |(count, dt)| copy(Data::source(sbuf, count, &dt), inn(root)));
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
        self.begin_collective(comm, tag)?;
        // SAFETY: the caller's promise.
        unsafe { self.send_to(comm, tag, Data::source(sbuf, count, &dt), root) }
    }

    /// What the root itself puts into a gather, if it does not lie at `target` already.
    fn own_source(
        &self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        target: Data,
    ) -> Res<Option<(u64, Rc<Datatype>)>> {
        if is_in_place(sbuf) {
            return Ok(None);
        }
        let (count, dt) = self.checked_type(scount, sdt)?;
        check_buffer(sbuf, count, &dt)?;
        check_alias(Data::source(sbuf, count, &dt), target)?;
        Ok(Some((count, dt)))
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
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.scatter_begun(
                    How::Now,
                    Blocks { buf: sbuf, layout: Layout::Even(scount, sdt) },
                    Block { buf: rbuf, count: rcount, dt: rdt },
                    root,
                    handle,
                )
            };
            return self.in_one_call(begun);
        }
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
            let own = self.own_target(out(root), rbuf, rcount, rdt)?;
            self.begin_collective(&comm, tag)?;
            let own =
                own.map_or(Ok(()), |(count, dt)| copy(out(root), Data::new(rbuf, count, &dt)));
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
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.scatter_begun(
                    How::Now,
                    Blocks { buf: sbuf, layout: Layout::Varied(scounts, displs, sdt) },
                    Block { buf: rbuf, count: rcount, dt: rdt },
                    root,
                    handle,
                )
            };
            return self.in_one_call(begun);
        }
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
                check_block(sbuf, out(rank))?;
            }
            let own = self.own_target(out(root), rbuf, rcount, rdt)?;
            self.begin_collective(&comm, tag)?;
            let own =
                own.map_or(Ok(()), |(count, dt)| copy(out(root), Data::new(rbuf, count, &dt)));
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
        self.begin_collective(comm, tag)?;
        // SAFETY: the caller's promise.
        unsafe { self.receive(comm, tag, Data::new(rbuf, count, &dt), root) }
    }

    /// Where the root itself gets its part of a scatter, unless that stays where it lies.
    fn own_target(
        &self,
        own: Data,
        rbuf: *mut u8,
        rcount: i64,
        rdt: Handle,
    ) -> Res<Option<(u64, Rc<Datatype>)>> {
        if is_in_place(rbuf) {
            return Ok(None);
        }
        let (count, dt) = self.checked_type(rcount, rdt)?;
        check_buffer(rbuf, count, &dt)?;
        check_alias(own, Data::new(rbuf, count, &dt))?;
        Ok(Some((count, dt)))
    }
}
