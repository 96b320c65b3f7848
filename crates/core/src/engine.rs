//! Progress: the one engine that moves messages, driven from within MPI calls.
//!
//! It never calls the program's code and blocks only in `wait_until`, which is a safe point for
//! freezing: there the process may vanish and come back as a new incarnation, in the middle of the
//! loop. `rebuild` then asks the door again for every posted receive. Whoever waits for a thing of
//! chance (with a live verdict) must ask the door again after `Wake::Restored`.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use eyrie_channel::Endpoint;
use eyrie_ledger::door::Post;
use eyrie_ledger::entry::{REMOTE, SYNC};
use eyrie_ledger::reader::Entry;

use crate::error::class;
use crate::handle::{Handle, Kind, Slab};
use crate::machine::Machine;
use crate::matching::{Posted, Queues, Waiting};
use crate::request::{Op, RecvOp, Request, State, Unexpected};

/// Where the rest of a message that is coming in goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sink {
    Request(Handle),
    Unexpected(usize),
    /// A matched probe took it.
    Message(Handle),
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    Done,
    /// The process was restored while it waited.
    Restored,
}

/// Hashes a context: they are small numbers that the library gives itself, so nobody can craft
/// collisions, and this is on the path of every message.
#[derive(Default, Clone, Copy)]
pub(crate) struct Spread(u64);

impl std::hash::BuildHasher for Spread {
    type Hasher = Spread;
    fn build_hasher(&self) -> Spread {
        Spread(0)
    }
}

impl std::hash::Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u32(u32::from(*b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// All pending operations of a rank.
pub struct Engine {
    pub(crate) reqs: Slab<Request>,
    contexts: HashMap<u32, Queues, Spread>,
    pub(crate) unexpected: Vec<Option<Unexpected>>,
    free_unexpected: Vec<usize>,
    inbound: Vec<Option<Sink>>,
    /// Sends that wait for log space, by destination, first come first served.
    pub(crate) queued: Vec<VecDeque<Handle>>,
    pub(crate) queued_total: usize,
    /// Sends that wait for their receiver's acknowledgement.
    pub(crate) unacked: Vec<Handle>,
    pub(crate) next_post: u64,
    arrivals: u64,
    pub(crate) messages: Slab<Unexpected>,
    fruitless: u32,
}

impl Engine {
    pub fn new(ranks: u32) -> Self {
        let n = ranks as usize;
        Engine {
            reqs: Slab::new(Kind::Request),
            contexts: HashMap::default(),
            unexpected: Vec::new(),
            free_unexpected: Vec::new(),
            inbound: vec![None; n],
            queued: vec![VecDeque::new(); n],
            queued_total: 0,
            unacked: Vec::new(),
            next_post: 0,
            arrivals: 0,
            messages: Slab::new(Kind::Message),
            fruitless: 0,
        }
    }

    #[inline]
    pub(crate) fn queues(&mut self, ctx: u32) -> &mut Queues {
        let ranks = self.inbound.len() as u32;
        self.contexts.entry(ctx).or_insert_with(|| Queues::new(ranks))
    }

    /// Gives up the queues of a context that is not used any more, if nothing is in them.
    pub(crate) fn forget(&mut self, ctx: u32) {
        if self.contexts.get(&ctx).is_some_and(Queues::is_idle) {
            self.contexts.remove(&ctx);
        }
    }

    #[cfg(test)]
    pub(crate) fn contexts_held(&self) -> usize {
        self.contexts.len()
    }

    fn store_unexpected(&mut self, message: Unexpected) -> usize {
        match self.free_unexpected.pop() {
            Some(slot) => {
                self.unexpected[slot] = Some(message);
                slot
            }
            None => {
                self.unexpected.push(Some(message));
                self.unexpected.len() - 1
            }
        }
    }

    /// Takes a message out of the unexpected ones.
    pub(crate) fn take_unexpected(&mut self, slot: usize) -> Option<Unexpected> {
        let message = self.unexpected.get_mut(slot)?.take()?;
        self.queues(message.ctx).remove_unexpected(message.src, slot);
        self.free_unexpected.push(slot);
        Some(message)
    }

    /// Whether a message from `src` in this context can only be for the next receive of it.
    #[inline]
    pub(crate) fn nothing_pending(&self, ctx: u32, src: u32) -> bool {
        self.queued_total == 0
            && self.unacked.is_empty()
            && self.inbound[src as usize].is_none()
            && self.contexts.get(&ctx).is_none_or(|q| q.is_clear_for(src))
    }

    pub(crate) fn is_done(&self, req: Handle) -> bool {
        self.reqs.get(req).is_none_or(|r| r.state != State::Active)
    }
}

impl Machine {
    /// Into the library: first thing in every MPI call.
    #[inline]
    pub fn enter(&mut self) {
        if self.endpoint.enter() {
            self.rebuild();
        }
        if !self.endpoint.door.has_room() {
            self.await_door_room();
        }
    }

    /// Out of the library: last thing in every MPI call.
    #[inline]
    pub fn leave(&mut self) {
        self.endpoint.leave();
    }

    #[cold]
    fn await_door_room(&mut self) {
        self.endpoint.press(true);
        while self.wait_until(|m| m.endpoint.door.has_room()) == Wake::Restored {}
        self.endpoint.press(false);
    }

    /// Moves what can be moved. True if anything was.
    pub(crate) fn progress(&mut self) -> bool {
        let mut moved = false;
        for src in 0..self.endpoint.size() {
            moved |= self.poll(src);
        }
        if self.engine.queued_total > 0 {
            moved |= self.push_queued();
        }
        if !self.engine.unacked.is_empty() {
            moved |= self.check_acks();
        }
        if self.endpoint.end_replay() {
            self.release_held();
            moved = true;
        }
        moved
    }

    /// Takes in what has come from `src`.
    #[inline]
    pub(crate) fn poll(&mut self, src: u32) -> bool {
        let mut moved = false;
        while let Some(entry) = self.endpoint.peek(src) {
            self.take_entry(src, &entry);
            moved = true;
        }
        moved
    }

    fn take_entry(&mut self, src: u32, entry: &Entry) {
        if entry.is_first() {
            let posted = self.engine.queues(entry.env.ctx).take_posted(src, entry.env.tag);
            let Some(posted) = posted else { return self.take_unexpected_entry(src, entry) };
            let len = self.endpoint.message_bytes(entry);
            self.begin(posted.req, src, entry.env.crank, entry.env.tag, len);
            if matched_is_enough(entry) {
                self.endpoint.acknowledge(src, entry);
            }
            self.engine.inbound[src as usize] = Some(Sink::Request(posted.req));
        }
        match self.engine.inbound[src as usize] {
            Some(Sink::Request(req)) => {
                self.deliver(req, src, entry);
                self.endpoint.consume(src, entry);
            }
            Some(Sink::Unexpected(slot)) => {
                if let (true, Some(Some(u))) =
                    (entry.is_last(), self.engine.unexpected.get_mut(slot))
                {
                    u.whole = true;
                }
                self.endpoint.consume(src, entry);
            }
            Some(Sink::Message(h)) => {
                if let (true, Some(u)) = (entry.is_last(), self.engine.messages.get_mut(h)) {
                    u.whole = true;
                }
                self.endpoint.consume(src, entry);
            }
            None => self.endpoint.consume(src, entry),
        }
        if entry.is_last() {
            self.engine.inbound[src as usize] = None;
        }
    }

    fn take_unexpected_entry(&mut self, src: u32, entry: &Entry) {
        let len = self.endpoint.message_bytes(entry);
        let reader = self.endpoint.keep(src, entry);
        let (ctx, tag, crank) = (entry.env.ctx, entry.env.tag, entry.env.crank);
        let whole = entry.is_last();
        let slot =
            self.engine.store_unexpected(Unexpected { src, ctx, tag, crank, len, reader, whole });
        self.engine.arrivals += 1;
        let arrival = self.engine.arrivals;
        self.engine.queues(ctx).push_unexpected(src, Waiting { arrival, tag, slot });
        if !whole {
            self.engine.inbound[src as usize] = Some(Sink::Unexpected(slot));
        }
    }

    /// A receive has met its message: records the match if it was left to chance.
    fn begin(&mut self, req: Handle, src: u32, crank: u32, tag: i32, len: u64) {
        self.endpoint.count_received();
        let Some(Request { op: Op::Recv(recv), status, error, .. }) = self.engine.reqs.get_mut(req)
        else {
            return;
        };
        recv.matched = true;
        recv.len = len;
        status.source = crank as i32;
        status.tag = tag;
        status.bytes = len.min(recv.data.bytes);
        if len > recv.data.bytes {
            *error = Some(class::TRUNCATE);
        }
        if recv.src.is_none() && !recv.forced {
            self.endpoint.door.record_match(recv.post, src);
        }
    }

    /// Copies an entry's payload to the receive's buffer.
    fn deliver(&mut self, req: Handle, src: u32, entry: &Entry) {
        let Some(r) = self.engine.reqs.get_mut(req) else { return };
        let Op::Recv(recv) = &mut r.op else { return };
        if entry.flags & REMOTE != 0 {
            Self::deliver_remote(&self.endpoint, recv, entry);
            self.endpoint.acknowledge(src, entry);
        } else if entry.frag > 0 {
            // SAFETY: `peek` checked that the entry holds `frag` bytes; the entry stays until the
            // channel's `need` passes it, which happens after this. The buffer is the program's
            // promise with the receive.
            unsafe {
                let bytes = std::slice::from_raw_parts(entry.payload, entry.frag as usize);
                recv.data.scatter(recv.got, bytes);
            }
            recv.got += entry.frag;
        }
        if entry.is_last() {
            self.finish(req);
        }
    }

    fn deliver_remote(endpoint: &Endpoint, recv: &RecvOp, entry: &Entry) {
        let len = recv.len.min(recv.data.bytes);
        match recv.data.flat {
            // SAFETY: at most the buffer's size, which is the program's promise.
            Some(at) => unsafe { endpoint.read_remote(entry, at, len) },
            None => {
                let mut copy = vec![0u8; len as usize];
                // SAFETY: `copy` is `len` bytes long; the buffer as above.
                unsafe {
                    endpoint.read_remote(entry, copy.as_mut_ptr(), len);
                    recv.data.scatter(0, &copy);
                }
            }
        }
    }

    /// The operation is complete.
    pub(crate) fn finish(&mut self, req: Handle) {
        let Some(r) = self.engine.reqs.get_mut(req) else { return };
        r.state = State::Done;
        if r.orphan {
            self.engine.reqs.remove(req);
        }
    }

    /// Lets a receive take an unexpected message, as far as that has come.
    pub(crate) fn consume_unexpected(&mut self, req: Handle, message: Unexpected) {
        let src = message.src;
        let start = message.reader.pos;
        self.begin(req, src, message.crank, message.tag, message.len);
        let mut reader = message.reader;
        reader.rebuild();
        // Entries up to the channel's front are ours to read; those behind it come by `poll`.
        let front = self.endpoint.front(src);
        while reader.pos < front {
            let Ok(Some(entry)) = reader.peek() else { break };
            if entry.is_first() && matched_is_enough(&entry) {
                self.endpoint.acknowledge(src, &entry);
            }
            self.deliver(req, src, &entry);
            reader.pass(&entry);
            if entry.is_last() {
                break;
            }
        }
        if !message.whole {
            self.engine.inbound[src as usize] = Some(Sink::Request(req));
        }
        self.endpoint.release(src, start);
    }

    /// Posts a receive: takes its message if it is here, else queues it.
    pub(crate) fn post_recv(&mut self, req: Handle) {
        let Some(Request { op: Op::Recv(recv), .. }) = self.engine.reqs.get_mut(req) else {
            return;
        };
        let wildcard = recv.src.is_none();
        let posted = Posted { post: recv.post, tag: recv.tag, req };
        let (mut src, ctx, tag) = (recv.src, recv.ctx, recv.tag);
        match self.endpoint.door.ask_post(recv.post, wildcard) {
            Post::Free => {}
            Post::Source(s) => {
                recv.force(s);
                src = Some(s);
            }
            Post::Held => return self.engine.queues(ctx).hold(posted),
            Post::Never => {
                recv.forced = true;
                return;
            }
        }
        self.match_or_queue(src, ctx, tag, posted);
    }

    fn match_or_queue(&mut self, src: Option<u32>, ctx: u32, tag: i32, posted: Posted) {
        let found = self.engine.queues(ctx).find_unexpected(src, tag);
        match found.and_then(|(_, w)| self.engine.take_unexpected(w.slot)) {
            Some(message) => self.consume_unexpected(posted.req, message),
            None => self.engine.queues(ctx).post(src, posted),
        }
    }

    /// The replay is over: what was held may match now, in the order of posting.
    fn release_held(&mut self) {
        let contexts: Vec<u32> = self.engine.contexts.keys().copied().collect();
        for ctx in contexts {
            for posted in self.engine.queues(ctx).take_all_posted() {
                let Some(Request { op: Op::Recv(recv), .. }) = self.engine.reqs.get(posted.req)
                else {
                    continue;
                };
                let (src, tag) = (recv.wanted(), recv.tag);
                self.match_or_queue(src, ctx, tag, posted);
            }
        }
    }

    /// After a restore: what is recorded beyond the image decides over the receives still posted.
    #[cold]
    pub(crate) fn rebuild(&mut self) {
        let mut contexts: Vec<u32> = self.engine.contexts.keys().copied().collect();
        contexts.sort_unstable();
        for ctx in contexts {
            for posted in self.engine.queues(ctx).take_all_posted() {
                let Some(Request { op: Op::Recv(recv), .. }) = self.engine.reqs.get_mut(posted.req)
                else {
                    continue;
                };
                let mut verdict = Post::Free;
                if !recv.forced {
                    verdict = self.endpoint.door.ask_post(recv.post, recv.src.is_none());
                }
                match verdict {
                    Post::Free => {}
                    Post::Source(s) => recv.force(s),
                    Post::Never => {
                        recv.forced = true;
                        continue;
                    }
                    Post::Held => {
                        self.engine.queues(ctx).hold(posted);
                        continue;
                    }
                }
                let src = recv.wanted();
                self.engine.queues(ctx).post(src, posted);
            }
        }
        self.endpoint.door.forget_posts_below(self.engine.next_post);
        self.endpoint.begin_replay();
        if !self.endpoint.door.replaying() {
            self.release_held();
        }
    }

    /// Waits until `done`, moving messages meanwhile.
    pub(crate) fn wait_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Wake {
        let mut idle = 0u32;
        loop {
            if done(self) {
                return Wake::Done;
            }
            if self.progress() {
                idle = 0;
                continue;
            }
            if let Some(seen) = self.endpoint.wait_round(idle) {
                if done(self) || self.progress() {
                    self.endpoint.disarm();
                    continue;
                }
                let short = self.engine.queued_total > 0;
                self.endpoint.sleep(seen, short);
            }
            if self.endpoint.woke_restored() {
                self.rebuild();
                return Wake::Restored;
            }
            idle = idle.saturating_add(1);
        }
    }

    /// Waits until `done`, whatever happens to the process meanwhile.
    pub(crate) fn wait_for(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        while self.wait_until(&mut done) == Wake::Restored {}
    }

    /// After a fruitless poll by the program: lets others run now and then. Safe point.
    pub(crate) fn polled(&mut self) {
        self.engine.fruitless = self.engine.fruitless.wrapping_add(1);
        self.endpoint.polled(self.engine.fruitless);
        if self.endpoint.woke_restored() {
            self.rebuild();
        }
    }

    /// The rest of a message that a matched probe took belongs to `h`.
    pub(crate) fn redirect(&mut self, src: u32, h: Handle) {
        self.engine.inbound[src as usize] = Some(Sink::Message(h));
    }

    pub(crate) fn request(&self, req: Handle) -> Option<&Request> {
        self.engine.reqs.get(req)
    }

    /// A new request, active.
    pub(crate) fn new_request(
        &mut self,
        comm: &Rc<crate::comm::Comm>,
        comm_handle: Handle,
        op: Op,
    ) -> crate::error::Res<Handle> {
        self.engine.reqs.insert(Request {
            comm: comm.clone(),
            comm_handle,
            state: State::Active,
            status: crate::status::Status::EMPTY,
            error: None,
            orphan: false,
            template: None,
            op,
        })
    }
}

/// Whether the sender waits for the match; a remote message is acknowledged when it was read.
fn matched_is_enough(entry: &Entry) -> bool {
    entry.flags & (SYNC | REMOTE) == SYNC
}

impl RecvOp {
    /// The source that it matches: the program's, or the one the door dictated.
    pub(crate) fn wanted(&self) -> Option<u32> {
        self.src
    }

    fn force(&mut self, src: u32) {
        self.src = Some(src);
        self.forced = true;
    }
}
