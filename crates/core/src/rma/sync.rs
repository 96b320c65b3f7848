//! Fences, groups, locks and flushes (MPI 5.0 section 12.5).
//!
//! Everything that a rank sends to another for a window goes one way, in order: so a mark that
//! comes after operations says that they were applied.

use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use eyrie_ledger::door::{Call, Outcome, Verdict};

use super::message::{Kind, Message};
use super::target::GRANT;
use super::window::{Held, Window};
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::{Data, Op, Request};

/// `MPI_MODE_NOCHECK` and `MPI_MODE_NOSUCCEED` of the standard ABI.
pub const MODE_NOCHECK: i32 = 1024;
pub const MODE_NOSUCCEED: i32 = 16384;

impl Machine {
    /// All operations of all ranks that began before it are done.
    pub fn win_fence(&mut self, win: Handle, assert: i32) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        if window.has_locks() || window.epochs.borrow().access.is_some() {
            return Err(class::RMA_SYNC);
        }
        for to in window.others() {
            self.rma_send_mark(&window, to, Message::of(Kind::Fence, 0))?;
        }
        let number = {
            let mut epochs = window.epochs.borrow_mut();
            epochs.fences += 1;
            epochs.fences
        };
        self.wait_in(&window, |w| {
            let epochs = w.epochs.borrow();
            w.others().all(|r| epochs.marks[r as usize] >= number)
        })?;
        for from in 0..window.comm.size() {
            self.complete_replies(&window, from)?;
        }
        let mut epochs = window.epochs.borrow_mut();
        epochs.sent.fill(false);
        epochs.fenced = assert & MODE_NOSUCCEED == 0;
        Ok(())
    }

    /// `MPI_Win_post`: the ranks of the group may access this one's memory.
    pub fn win_post(&mut self, win: Handle, group: Handle) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        let ranks = self.ranks_in(&window, group)?;
        if window.epochs.borrow().exposed.is_some() {
            return Err(class::RMA_SYNC);
        }
        for to in &ranks {
            self.rma_mark(&window, *to, Message::of(Kind::Post, 0))?;
        }
        window.epochs.borrow_mut().exposed = Some(ranks);
        Ok(())
    }

    /// `MPI_Win_start`: until all of the group have posted.
    pub fn win_start(&mut self, win: Handle, group: Handle) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        let ranks = self.ranks_in(&window, group)?;
        if window.has_locks() || window.epochs.borrow().access.is_some() {
            return Err(class::RMA_SYNC);
        }
        self.wait_in(&window, |w| ranks.iter().all(|r| w.epochs.borrow().posts[*r as usize] > 0))?;
        let mut epochs = window.epochs.borrow_mut();
        ranks.iter().for_each(|r| epochs.posts[*r as usize] -= 1);
        epochs.fenced = false;
        epochs.access = Some(ranks);
        Ok(())
    }

    pub fn win_complete(&mut self, win: Handle) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        let ranks = window.epochs.borrow_mut().access.take().ok_or(class::RMA_SYNC)?;
        for to in &ranks {
            self.rma_mark(&window, *to, Message::of(Kind::Complete, 0))?;
        }
        self.settle_all(&window, ranks.into_iter().map(|from| (from, None)))
    }

    pub fn win_wait(&mut self, win: Handle) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        if window.epochs.borrow().exposed.is_none() {
            return Err(class::RMA_SYNC);
        }
        self.wait_in(&window, Window::is_completed)?;
        window.end_exposure();
        Ok(())
    }

    /// Whether all have completed is chance, and goes through the door.
    pub fn win_test(&mut self, win: Handle) -> Res<bool> {
        let window = self.windows.get(win)?.clone();
        if window.epochs.borrow().exposed.is_none() {
            return Err(class::RMA_SYNC);
        }
        match self.ask(Call::Test) {
            Verdict::Fruitless => return Ok(false),
            Verdict::Forced(_) => {
                self.wait_in(&window, Window::is_completed)?;
            }
            Verdict::Live => {
                self.progress();
                self.serve();
                if !window.is_completed() {
                    self.fruitless();
                    self.polled();
                    return window.comm.whole().map(|()| false);
                }
                self.record(Call::Test, &Outcome::One(0));
            }
        }
        window.end_exposure();
        Ok(true)
    }

    pub fn win_lock(&mut self, win: Handle, exclusive: bool, rank: i32, assert: i32) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        let rank = window.rank(rank)?;
        let held = window.epochs.borrow().held[rank as usize];
        if held != Held::No || window.epochs.borrow().all || window.epochs.borrow().access.is_some()
        {
            return Err(class::RMA_SYNC);
        }
        self.lock(&window, rank, exclusive, assert)?;
        self.granted(&window, rank)
    }

    fn lock(&mut self, window: &Rc<Window>, rank: u32, exclusive: bool, assert: i32) -> Res<()> {
        let held = match exclusive {
            _ if assert & MODE_NOCHECK != 0 => Held::Unchecked,
            true => Held::Exclusive,
            false => Held::Shared,
        };
        if held != Held::Unchecked {
            let kind = if exclusive { Kind::LockExclusive } else { Kind::LockShared };
            self.rma_mark(window, rank, Message::of(kind, GRANT))?;
        }
        let mut epochs = window.epochs.borrow_mut();
        epochs.held[rank as usize] = held;
        // What the last fence allowed is over.
        epochs.fenced = false;
        Ok(())
    }

    /// Waits for a lock that was asked for.
    fn granted(&mut self, window: &Rc<Window>, rank: u32) -> Res<()> {
        let held = window.epochs.borrow().held[rank as usize];
        if held == Held::Unchecked {
            return Ok(());
        }
        if rank == window.comm.rank {
            return self.wait_in(window, |w| {
                let epochs = w.epochs.borrow();
                epochs.owner == Some(rank) || epochs.sharers.contains(&rank)
            });
        }
        self.await_word(window, rank, GRANT)
    }

    /// Waits until something is so in a window. What it waits for may be up to any of its members,
    /// as who holds a lock: so the loss of one is an error.
    fn wait_in(&mut self, window: &Rc<Window>, so: impl Fn(&Window) -> bool) -> Res<()> {
        self.wait_for(|_| so(window) || window.comm.whole().is_err());
        if so(window) { Ok(()) } else { window.comm.whole() }
    }

    pub fn win_unlock(&mut self, win: Handle, rank: i32) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        let rank = window.rank(rank)?;
        if window.epochs.borrow().all {
            return Err(class::RMA_SYNC);
        }
        let tag = self.unlock(&window, rank)?;
        self.settle(&window, rank, tag)
    }

    /// Gives a lock back; the tag of the reply that everything before is done.
    fn unlock(&mut self, window: &Rc<Window>, rank: u32) -> Res<Option<i32>> {
        let held = std::mem::replace(&mut window.epochs.borrow_mut().held[rank as usize], Held::No);
        let kind = match held {
            Held::No => return Err(class::RMA_SYNC),
            Held::Unchecked => Kind::Flush,
            Held::Shared | Held::Exclusive => Kind::Unlock,
        };
        self.ask_for_word(window, rank, kind)
    }

    /// Operations on a target are done: what they bring is in place, and the word that was asked
    /// for, if any, has come.
    fn settle(&mut self, window: &Rc<Window>, rank: u32, tag: Option<i32>) -> Res<()> {
        let done = self.complete_replies(window, rank);
        let told = tag.map_or(Ok(()), |tag| self.await_word(window, rank, tag));
        window.epochs.borrow_mut().sent[rank as usize] = false;
        done.and(told)
    }

    /// The same on several: on all of them, whichever fails.
    fn settle_all(
        &mut self,
        window: &Rc<Window>,
        all: impl Iterator<Item = (u32, Option<i32>)>,
    ) -> Res<()> {
        let mut result = Ok(());
        for (rank, tag) in all {
            let settled = self.settle(window, rank, tag);
            result = result.and(settled);
        }
        result
    }

    pub fn win_lock_all(&mut self, win: Handle, assert: i32) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        if window.has_locks() || window.epochs.borrow().access.is_some() {
            return Err(class::RMA_SYNC);
        }
        for rank in 0..window.comm.size() {
            self.lock(&window, rank, false, assert)?;
        }
        for rank in 0..window.comm.size() {
            self.granted(&window, rank)?;
        }
        window.epochs.borrow_mut().all = true;
        Ok(())
    }

    pub fn win_unlock_all(&mut self, win: Handle) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        if !window.epochs.borrow().all {
            return Err(class::RMA_SYNC);
        }
        let mut tags = Vec::new();
        for rank in 0..window.comm.size() {
            tags.push(self.unlock(&window, rank)?);
        }
        window.epochs.borrow_mut().all = false;
        self.settle_all(&window, (0..).zip(tags))
    }

    /// All operations on a target (`None`: on all) are done there.
    pub fn win_flush(&mut self, win: Handle, rank: Option<i32>) -> Res<()> {
        let (window, ranks) = self.flushed(win, rank)?;
        let mut tags = Vec::new();
        for rank in ranks.clone() {
            let sent = window.epochs.borrow().sent[rank as usize];
            let tag = if sent { self.ask_for_word(&window, rank, Kind::Flush)? } else { None };
            tags.push(tag);
        }
        self.settle_all(&window, ranks.zip(tags))
    }

    /// What they bring is here; what they take has left with the calls.
    pub fn win_flush_local(&mut self, win: Handle, rank: Option<i32>) -> Res<()> {
        let (window, ranks) = self.flushed(win, rank)?;
        let mut result = Ok(());
        for rank in ranks {
            let done = self.complete_replies(&window, rank);
            result = result.and(done);
        }
        result
    }

    fn flushed(&self, win: Handle, rank: Option<i32>) -> Res<(Rc<Window>, std::ops::Range<u32>)> {
        let window = self.windows.get(win)?.clone();
        let ranks = match rank {
            None if window.has_locks() => 0..window.comm.size(),
            None => return Err(class::RMA_SYNC),
            Some(rank) => {
                let rank = window.rank(rank)?;
                if window.epochs.borrow().held[rank as usize] == Held::No {
                    return Err(class::RMA_SYNC);
                }
                rank..rank + 1
            }
        };
        Ok((window, ranks))
    }

    /// `MPI_Win_sync`: there is one copy of the memory; what has come is applied, and what was
    /// stored before is seen by those who see what is stored afterwards.
    pub fn win_sync(&mut self, win: Handle) -> Res<()> {
        self.windows.get(win)?;
        fence(SeqCst);
        Ok(())
    }

    // ---- inside

    /// Ranks in the window's communicator of a group's members.
    fn ranks_in(&self, window: &Window, group: Handle) -> Res<Vec<u32>> {
        let group = self.groups.get(group)?;
        let ranks: Option<Vec<u32>> =
            group.members().iter().map(|w| window.comm.rank_of_world(*w)).collect();
        ranks.ok_or(class::GROUP)
    }

    /// A message without data to a rank, or at once to this one.
    fn rma_mark(&mut self, window: &Rc<Window>, to: u32, mark: Message) -> Res<()> {
        if to == window.comm.rank {
            return self.rma_apply_own(window, mark);
        }
        self.rma_send_mark(window, to, mark)
    }

    fn rma_send_mark(&mut self, window: &Rc<Window>, to: u32, mark: Message) -> Res<()> {
        self.rma_post(window, window.comm.ctx(), to, 0, mark.bytes())
    }

    /// Sends a mark that has a reply; its tag, where it is another rank.
    fn ask_for_word(&mut self, window: &Rc<Window>, rank: u32, kind: Kind) -> Res<Option<i32>> {
        if rank == window.comm.rank {
            if kind == Kind::Unlock {
                self.pass_place();
                window.release(rank);
                self.rma_grant(window)?;
            }
            return Ok(None);
        }
        let tag = window.next_reply(rank);
        self.rma_send_mark(window, rank, Message::of(kind, tag))?;
        Ok(Some(tag))
    }

    /// Receives a reply that is empty.
    fn await_word(&mut self, window: &Rc<Window>, from: u32, tag: i32) -> Res<()> {
        let byte = self.types.get(BYTE)?;
        let data = Data::new(std::ptr::null_mut(), 0, byte);
        let ctx = window.comm.partitioned_ctx(true);
        let op = self.recv_op(ctx, data, Some(window.comm.world_rank(from)), tag);
        let req = self.new_request(&window.comm, window.comm_handle, Op::Recv(op))?;
        self.post_recv(req);
        self.check_begun(req, &window.comm);
        // The word may be up to who is lost.
        let comm = window.comm.clone();
        self.open(req);
        self.wait_for(|m| m.engine.is_done(req) || comm.whole().is_err());
        if !self.engine.is_done(req) {
            self.take_back(req);
            return window.comm.whole();
        }
        self.engine.reqs.remove(req).and_then(|r| r.error).map_or(Ok(()), Err)
    }

    /// What operations on a target bring is in place.
    fn complete_replies(&mut self, window: &Rc<Window>, from: u32) -> Res<()> {
        let mut result = Ok(());
        let replies = std::mem::take(&mut window.epochs.borrow_mut().replies[from as usize]);
        for (req, told) in replies {
            // The program may have completed it; another request has its handle then.
            let there = |r: &Request| Rc::ptr_eq(&r.comm, &window.comm);
            if !self.request(req).is_some_and(there) {
                continue;
            }
            self.await_request(req);
            self.place(req);
            let error = self.request(req).and_then(|r| r.error);
            result = result.and(error.map_or(Ok(()), Err));
            if !told {
                self.engine.reqs.remove(req);
            }
        }
        result
    }
}

impl Window {
    fn rank(&self, rank: i32) -> Res<u32> {
        u32::try_from(rank).ok().filter(|r| *r < self.comm.size()).ok_or(class::RANK)
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let me = self.comm.rank;
        (0..self.comm.size()).filter(move |r| *r != me)
    }

    fn has_locks(&self) -> bool {
        let epochs = self.epochs.borrow();
        epochs.all || epochs.held.iter().any(|h| *h != Held::No)
    }

    /// This rank accesses others, or they access it.
    pub(super) fn is_in_epoch(&self) -> bool {
        let epochs = self.epochs.borrow();
        epochs.access.is_some() || epochs.exposed.is_some() || self.has_locks()
    }

    /// All that this rank has posted to have completed.
    fn is_completed(&self) -> bool {
        let epochs = self.epochs.borrow();
        let done = |r: &u32| epochs.completes[*r as usize] > 0;
        epochs.exposed.as_ref().is_some_and(|ranks| ranks.iter().all(done))
    }

    fn end_exposure(&self) {
        let mut epochs = self.epochs.borrow_mut();
        let ranks = epochs.exposed.take().unwrap_or_default();
        ranks.iter().for_each(|r| epochs.completes[*r as usize] -= 1);
    }
}
