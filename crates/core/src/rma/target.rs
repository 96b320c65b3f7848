//! Applying what has come to a window of this rank.
//!
//! Kept true, for replay: what is applied by chance is recorded first, with its place in the rank's
//! course, which every call of the program, every message that is begun and every operation of its
//! own on its memory moves on; in a replay it is applied at that place, and nothing else is until
//! all that is recorded was repeated. What leaves the rank afterwards must not come before it in a
//! replay: so where there are windows every message and every call's end say how far the rank has
//! come without another application (a word of the log that grows in place). An application may
//! send a reply, which moves the place on, too. None begins within another.

use std::rc::Rc;

use eyrie_ledger::door::Applied;

use super::message::{Kind, Message};
use super::window::{Flavor, Window};
use crate::comm::Comm;
use crate::consts::COMM_SELF;
use crate::datatype::Datatype;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op;
use crate::request::{Data, Op, RecvOp};

/// What other ranks' operations are applied to.
enum Served {
    Window(Rc<Window>),
    /// The shared pointer of a file (`file::shared`).
    File(Handle),
}

impl Machine {
    /// Whether other ranks may ask for something that is applied here.
    #[inline]
    pub(crate) fn keeps_for_others(&self) -> bool {
        !self.windows.is_empty() || self.files.keeps_pointers()
    }

    /// Applies what has come, or what had come here in a run that is repeated. True if it did.
    #[inline]
    pub(crate) fn serve(&mut self) -> bool {
        if !self.keeps_for_others() || self.engine.serving {
            return false;
        }
        self.serve_all()
    }

    #[cold]
    fn serve_all(&mut self) -> bool {
        self.engine.serving = true;
        self.serves_here();
        let mut served = false;
        while let Some((of, source)) = self.next_to_serve() {
            served = true;
            let result = match of {
                Served::Window(window) => self.serve_window(&window, source),
                Served::File(fh) => self.serve_pointer(fh, source),
            };
            if let Err(class::PROC_FAILED | class::REVOKED) = result {
                // Of its origin nothing more comes, or nothing is to be answered.
                continue;
            }
            if let Err(e) = result {
                // The origin has gone on, and this rank's call is another one.
                let text = "an operation of another rank cannot be applied";
                let why = format!("{text}: {}", crate::errcode::class_text(e));
                self.endpoint.abort(e.0, &why);
            }
        }
        self.engine.serving = false;
        self.threads.note(served)
    }

    fn serve_window(&mut self, window: &Rc<Window>, source: u32) -> Res<()> {
        let message = Message::parse(&self.receive_asked(&window.comm, source)?)?;
        let rank = window.comm.rank_of_world(source).ok_or(class::INTERN)?;
        self.rma_apply(window, rank, message)
    }

    /// Whose operation on what is applied now.
    fn next_to_serve(&mut self) -> Option<(Served, u32)> {
        if self.endpoint.door.has_applied() {
            let next = self.endpoint.door.ask_applied(self.engine.place)?;
            self.engine.applied = next.number;
            return Some((self.served_in(next.ctx)?, next.source));
        }
        // What is not recorded was not applied when the last message was sent.
        let door = &self.endpoint.door;
        let repeats = self.endpoint.replaying() || self.engine.place <= door.passed();
        if repeats || !door.has_room() {
            return None;
        }
        let windows = self.windows.iter().map(|w| w.comm.ctx());
        let ctxs: Vec<u32> = windows.chain(self.files.pointer_contexts()).collect();
        let found = ctxs.into_iter().find_map(|ctx| {
            let queues = self.engine.queues(ctx);
            queues.find_unexpected(None, 0).map(|(source, _)| (ctx, source))
        });
        let (ctx, source) = found?;
        self.engine.applied = self.engine.applied.wrapping_add(1) & Applied::NUMBERS;
        let (place, number) = (self.engine.place, self.engine.applied);
        self.endpoint.door.record_applied(Applied { place, number, source, ctx });
        Some((self.served_in(ctx)?, source))
    }

    fn served_in(&self, ctx: u32) -> Option<Served> {
        let window = self.windows.iter().find(|w| w.comm.ctx() == ctx).cloned();
        window.map(Served::Window).or_else(|| self.files.pointer_in(ctx).map(Served::File))
    }

    /// What a rank asks for, whole, whatever is there of it yet.
    pub(crate) fn receive_asked(&mut self, comm: &Rc<Comm>, source: u32) -> Res<Vec<u8>> {
        let ctx = comm.ctx();
        let there = |m: &mut Machine| {
            m.engine.queues(ctx).find_unexpected(Some(source), 0).map(|(_, w)| w.slot)
        };
        self.wait_for(|m| there(m).is_some());
        let slot = there(self).ok_or(class::INTERN)?;
        let len = self.engine.unexpected.get(slot).and_then(|u| u.as_ref()).map_or(0, |u| u.len);
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| class::NO_MEM)?];
        let data = Data::new(bytes.as_mut_ptr(), len, self.types.get(BYTE)?);
        let op = RecvOp { open: true, ..self.recv_op(ctx, data, Some(source), 0) };
        let req = self.new_request(comm, COMM_SELF, Op::Recv(op))?;
        self.post_recv(req);
        self.check_begun(req, comm);
        self.coll_wait(&[req])?;
        Ok(bytes)
    }

    /// This rank's own operation on its own memory. What others ask for comes before or after it,
    /// as before or after a message.
    pub(super) fn rma_apply_own(&mut self, window: &Rc<Window>, message: Message) -> Res<()> {
        self.pass_place();
        self.rma_apply(window, window.comm.rank, message)
    }

    /// What a rank of the window's communicator asks for.
    pub(super) fn rma_apply(&mut self, window: &Rc<Window>, from: u32, m: Message) -> Res<()> {
        if window.reach.is_mapped() && m.kind.is_data() {
            let before = self.rma_near(window, window.comm.rank, &m)?;
            return match m.kind.has_data_back() {
                true => self.rma_answer(window, from, m.reply, before),
                false => Ok(()),
            };
        }
        match m.kind {
            Kind::Put => window.scatter(&m, &m.data),
            Kind::Get => {
                let data = window.gather(&m)?;
                self.rma_answer(window, from, m.reply, data)
            }
            Kind::Accumulate => self.rma_combine(window, &m).map(drop),
            Kind::GetAccumulate => {
                let before = self.rma_combine(window, &m)?;
                self.rma_answer(window, from, m.reply, before)
            }
            Kind::CompareAndSwap => {
                let before = window.gather(&m)?;
                let (new, compare) = m.data.split_at(before.len().min(m.data.len()));
                if before == compare {
                    window.scatter(&m, new)?;
                }
                self.rma_answer(window, from, m.reply, before)
            }
            Kind::Flush => self.rma_answer(window, from, m.reply, Vec::new()),
            Kind::LockShared | Kind::LockExclusive => {
                let exclusive = m.kind == Kind::LockExclusive;
                window.epochs.borrow_mut().queue.push_back((from, exclusive));
                self.rma_grant(window)
            }
            Kind::Unlock => {
                window.release(from);
                self.rma_answer(window, from, m.reply, Vec::new())?;
                self.rma_grant(window)
            }
            Kind::Post => {
                window.epochs.borrow_mut().posts[from as usize] += 1;
                Ok(())
            }
            Kind::Complete => {
                window.epochs.borrow_mut().completes[from as usize] += 1;
                Ok(())
            }
            Kind::Fence => {
                window.epochs.borrow_mut().marks[from as usize] += 1;
                Ok(())
            }
        }
    }

    /// A reply; of this rank's own operation it goes the same way, through its own channel.
    pub(super) fn rma_answer(
        &mut self,
        window: &Rc<Window>,
        to: u32,
        tag: i32,
        data: Vec<u8>,
    ) -> Res<()> {
        self.rma_post(window, window.comm.partitioned_ctx(true), to, tag, data)
    }

    /// Applies an accumulation; returns what was there.
    fn rma_combine(&mut self, window: &Rc<Window>, m: &Message) -> Res<Vec<u8>> {
        self.rma_combine_at(window, window.comm.rank, m)
    }

    /// The same to the memory of a rank that is reached, of which nobody changes it meanwhile.
    pub(super) fn rma_combine_at(
        &mut self,
        window: &Window,
        rank: u32,
        m: &Message,
    ) -> Res<Vec<u8>> {
        let before = window.gather_at(rank, m)?;
        if m.op == op::NO_OP {
            return Ok(before);
        }
        if m.data.len() != before.len() {
            return Err(class::INTERN);
        }
        if m.op == op::REPLACE {
            window.scatter_at(rank, m, &m.data)?;
            return Ok(before);
        }
        let (operation, dt) = (self.ops.get(m.op)?, self.types.get(m.element)?);
        let count = before.len() as u64 / dt.size.max(1);
        let mut after = Aligned::elements(&dt, &before, count)?;
        let data = Aligned::elements(&dt, &m.data, count)?;
        // SAFETY: both hold `count` elements of the predefined type, and are apart.
        unsafe {
            op::reduce_local(&operation, &dt, m.element, data.ptr(), after.ptr_mut(), count)?;
        }
        match dt.is_gapless() {
            true => window.scatter_at(rank, m, after.bytes())?,
            false => {
                let mut packed = vec![0; before.len()];
                // SAFETY: it holds `count` elements.
                unsafe { dt.pack_range(after.ptr(), count, 0, &mut packed) };
                window.scatter_at(rank, m, &packed)?;
            }
        }
        Ok(before)
    }

    /// Gives the lock of this rank's memory to those whose turn it is.
    pub(super) fn rma_grant(&mut self, window: &Rc<Window>) -> Res<()> {
        while let Some((to, tag)) = window.next_owner() {
            if to != window.comm.rank {
                self.rma_answer(window, to, tag, Vec::new())?;
            }
        }
        Ok(())
    }
}

/// Tag of the replies that grant locks: others are never 0.
pub(super) const GRANT: i32 = 0;

impl Window {
    /// Who gets the lock now, and the tag of the reply.
    fn next_owner(&self) -> Option<(u32, i32)> {
        let mut epochs = self.epochs.borrow_mut();
        let &(rank, exclusive) = epochs.queue.front()?;
        if epochs.owner.is_some() || (exclusive && !epochs.sharers.is_empty()) {
            return None;
        }
        epochs.queue.pop_front();
        match exclusive {
            true => epochs.owner = Some(rank),
            false => epochs.sharers.push(rank),
        }
        Some((rank, GRANT))
    }

    pub(super) fn release(&self, rank: u32) {
        let mut epochs = self.epochs.borrow_mut();
        if epochs.owner == Some(rank) {
            epochs.owner = None;
        } else if let Some(at) = epochs.sharers.iter().position(|r| *r == rank) {
            epochs.sharers.swap_remove(at);
        }
    }

    /// Calls `f` with each run of the memory of a rank, this one or one whose memory is reached,
    /// that a message concerns, and where it lies in its data.
    pub(super) fn each_run_at(
        &self,
        rank: u32,
        m: &Message,
        mut f: impl FnMut(*mut u8, usize, usize),
    ) -> Res<()> {
        let start = match self.flavor {
            Flavor::Dynamic => m.disp,
            _ => m.disp.checked_mul(self.shown[rank as usize].1).ok_or(class::RMA_RANGE)?,
        };
        let mut at = 0;
        for (offset, bytes) in &m.runs {
            let first = start.checked_add(*offset).ok_or(class::RMA_RANGE)?;
            let place = self.place(rank, first, *bytes).ok_or(class::RMA_RANGE)?;
            let bytes = usize::try_from(*bytes).map_err(|_| class::RMA_RANGE)?;
            f(place, at, bytes);
            at += bytes;
        }
        Ok(())
    }

    /// The address of so many bytes of a rank's memory, which is this one's or is reached.
    pub(super) fn place(&self, rank: u32, first: i64, bytes: u64) -> Option<*mut u8> {
        let first = first as u64;
        let end = first.checked_add(bytes)?;
        if self.flavor != Flavor::Dynamic {
            let there = self.memory_of(rank);
            return (end <= there.bytes).then(|| there.base.wrapping_add(first as usize));
        }
        // Pieces that were attached one by one may lie side by side.
        let attached = self.attached.borrow();
        let mut reached = first;
        let further = |reached: u64| {
            let tops = attached.iter().filter_map(|(base, len)| {
                let base = *base as u64;
                base.checked_add(*len).filter(|top| base <= reached && reached < *top)
            });
            tops.max()
        };
        while reached < end {
            reached = further(reached)?;
        }
        let there = bytes > 0
            || attached.iter().any(|(base, len)| {
                (*base as u64..=(*base as u64).saturating_add(*len)).contains(&first)
            });
        there.then(|| std::ptr::with_exposed_provenance_mut(first as usize))
    }

    fn gather(&self, m: &Message) -> Res<Vec<u8>> {
        self.gather_at(self.comm.rank, m)
    }

    pub(super) fn gather_at(&self, rank: u32, m: &Message) -> Res<Vec<u8>> {
        let total = usize::try_from(m.target_bytes()).map_err(|_| class::NO_MEM)?;
        let mut out = vec![0u8; total];
        let to = out.as_mut_ptr();
        self.each_run_at(rank, m, |from, at, bytes| {
            // SAFETY: the run lies in memory that the program gave to the window; `out` has room
            // for all runs.
            unsafe { std::ptr::copy_nonoverlapping(from, to.add(at), bytes) };
        })?;
        Ok(out)
    }

    fn scatter(&self, m: &Message, data: &[u8]) -> Res<()> {
        self.scatter_at(self.comm.rank, m, data)
    }

    pub(super) fn scatter_at(&self, rank: u32, m: &Message, data: &[u8]) -> Res<()> {
        if data.len() as u64 != m.target_bytes() {
            return Err(class::INTERN);
        }
        self.each_run_at(rank, m, |to, at, bytes| {
            // SAFETY: as in `gather`; the data is as long as the runs.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr().add(at), to, bytes) };
        })
    }
}

/// Bytes at an address that every element may have.
pub(super) struct Aligned {
    words: Vec<u128>,
    bytes: usize,
}

impl Aligned {
    pub(super) fn of(data: &[u8]) -> Aligned {
        let mut words = vec![0u128; data.len().div_ceil(size_of::<u128>())];
        // SAFETY: there are at least as many bytes in the words.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), words.as_mut_ptr().cast(), data.len());
        }
        Aligned { words, bytes: data.len() }
    }

    /// `count` elements of a predefined type as operations want them: pairs with what is between.
    fn elements(dt: &Datatype, packed: &[u8], count: u64) -> Res<Aligned> {
        if dt.is_gapless() {
            return Ok(Aligned::of(packed));
        }
        let bytes = count.checked_mul(dt.extent as u64).ok_or(class::COUNT)? as usize;
        let mut spread = Aligned { words: vec![0; bytes.div_ceil(size_of::<u128>())], bytes };
        // SAFETY: it has room for `count` elements.
        unsafe { dt.unpack_range(spread.ptr_mut(), count, 0, packed) };
        Ok(spread)
    }

    pub(super) fn ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    pub(super) fn ptr_mut(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold that many bytes.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.bytes) }
    }
}
