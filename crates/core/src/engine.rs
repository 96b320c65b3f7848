//! Progress: the one engine that moves messages, driven from within MPI calls.
//!
//! It never calls the program's code and blocks only in `wait_until`, which is a safe point for
//! freezing: there the process may vanish and come back as a new incarnation, in the middle of the
//! loop. `rebuild` then asks the door again for every posted receive. Whoever waits for a thing of
//! chance (with a live verdict) must ask the door again after `Wake::Restored`.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use eyrie_ledger::clock;
use eyrie_ledger::door::Post;
use eyrie_ledger::reader::Entry;

use crate::consts::ANY_TAG;
use crate::handle::{Handle, Kind, Slab};
use crate::machine::Machine;
use crate::matching::Queues;
use crate::receiving::Late;
use crate::request::{Op, RecvOp, Request, State, Unexpected};

/// Where the rest of a message that is coming in goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sink {
    Request(Handle),
    Unexpected(usize),
    /// A matched probe took it.
    Message(Handle),
    /// It stays in the log until its receive is completed.
    Deferred(Handle),
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
    pub(crate) inbound: Vec<Option<Sink>>,
    /// Sends that wait for log space, by destination, first come first served.
    pub(crate) queued: Vec<VecDeque<Handle>>,
    pub(crate) queued_total: usize,
    /// Sends that wait for their receiver's acknowledgement.
    pub(crate) unacked: Vec<Handle>,
    pub(crate) last_post: u64,
    pub(crate) arrivals: u64,
    pub(crate) messages: Slab<Unexpected>,
    /// Receives of messages that are not in the log again yet.
    pub(crate) late: Vec<Late>,
    /// Receives whose payload is kept in the log (`pending`).
    pub(crate) deferred: usize,
    /// Of these those whose senders may still have to be told of the match.
    pub(crate) unmet: Vec<Handle>,
    /// Receives that the program has freed, with the numbers that they are recorded by.
    pub(crate) freed: Vec<(Handle, u64)>,
    /// Calls of the program, by which what was freed is recorded.
    pub(crate) calls: u64,
    /// Calls of the program and messages that it has begun: where in its course the rank is.
    pub(crate) place: u64,
    /// Operations of others that were applied to its windows.
    pub(crate) applied: u32,
    /// One is being applied.
    pub(crate) serving: bool,
    fruitless: u32,
}

/// Fruitless rounds after which the time that a wait takes is measured, for tools, unless it is
/// slept before: to read a clock takes as long as one of them.
const TIMED_AFTER: u32 = 16;
/// The receives of each program of a rank have numbers of their own.
const POSTS_SHIFT: u32 = 40;

impl Engine {
    pub fn new(ranks: u32, world: u32) -> Self {
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
            last_post: u64::from(world) << POSTS_SHIFT,
            arrivals: 0,
            messages: Slab::new(Kind::Message),
            late: Vec::new(),
            deferred: 0,
            unmet: Vec::new(),
            freed: Vec::new(),
            calls: 0,
            place: 0,
            applied: 0,
            serving: false,
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

    /// How many receives of a context wait for a message, and messages for a receive.
    pub(crate) fn queue_lengths(&self, ctx: u32) -> (usize, usize) {
        self.contexts.get(&ctx).map_or((0, 0), |q| (q.posted().count(), q.waiting()))
    }

    #[cfg(test)]
    pub(crate) fn contexts_held(&self) -> usize {
        self.contexts.len()
    }

    pub(crate) fn store_unexpected(&mut self, message: Unexpected) -> usize {
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

    #[inline]
    pub(crate) fn has_unexpected(&self) -> bool {
        self.unexpected.len() > self.free_unexpected.len()
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
            && self.late.is_empty()
            && self.inbound[src as usize].is_none()
            && self.contexts.get(&ctx).is_none_or(|q| q.is_clear_for(src))
    }

    /// What is waited for, in words: the oldest receive that has not matched.
    #[cold]
    pub(crate) fn awaited(&self) -> String {
        if self.queued_total > 0 {
            return String::from("a send waits for room in the log");
        }
        let posted = self.contexts.values().flat_map(Queues::posted);
        let Some(first) = posted.min_by_key(|p| p.post) else {
            return String::from("it waits for the rest or the receipt of a message");
        };
        let source = match self.reqs.get(first.req).map(|r| &r.op) {
            Some(Op::Recv(RecvOp { src: Some(src), .. })) => format!("rank {src}"),
            _ => String::from("any rank"),
        };
        let tag = match first.tag {
            ANY_TAG => String::from("any tag"),
            tag => format!("tag {tag}"),
        };
        format!("a receive from {source} with {tag} waits for a message that is not there")
    }

    /// Whether there is a receive for the message that `entry` is of.
    fn awaits(&self, src: u32, entry: &Entry) -> bool {
        if !entry.is_first() {
            return matches!(
                self.inbound[src as usize],
                Some(Sink::Request(_) | Sink::Deferred(_))
            );
        }
        let queues = self.contexts.get(&entry.env.ctx);
        queues.is_some_and(|q| q.is_awaited(src, entry.env.tag))
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

    /// The program calls this function. Those that it calls as often as clocks or threads have it
    /// are not told.
    #[inline]
    pub fn called(&mut self, name: &'static str) {
        self.step();
        self.engine.calls += 1;
        self.engine.place += 1;
        self.endpoint.door.call_begins();
        self.endpoint.called(name);
        if self.endpoint.is_eager() {
            self.progress();
        }
        if self.keeps_for_others() {
            self.progress();
            self.serve();
        }
    }

    /// Out of the library: last thing in every MPI call.
    #[inline]
    pub fn leave(&mut self) {
        self.step();
        if !self.engine.freed.is_empty() {
            self.settle_freed();
        }
        if self.keeps_for_others() {
            self.end_of_call();
        }
        if self.threads.are_many() {
            self.tell_waiting();
        }
        self.endpoint.leave();
    }

    /// What others did to windows in this call is done.
    fn end_of_call(&mut self) {
        if self.endpoint.door.has_applied() {
            self.serve();
        }
        if !self.endpoint.replaying() {
            self.endpoint.door.call_ends(self.engine.place);
        }
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
        if !self.engine.unmet.is_empty() {
            self.tell_matched();
        }
        if self.endpoint.end_replay() {
            self.release_held();
            moved = true;
        }
        self.threads.note(moved)
    }

    /// Takes in what has come from `src`.
    #[inline]
    pub(crate) fn poll(&mut self, src: u32) -> bool {
        let mut moved = false;
        if !self.engine.late.is_empty() {
            moved = self.take_late();
            if self.engine.late.iter().any(|l| l.message.src == src) {
                return moved;
            }
        }
        while let Some(entry) = self.endpoint.peek(src) {
            if entry.is_early() && !self.can_take_ahead(src, &entry) {
                // Only the log can keep it until it is asked for.
                self.endpoint.decline(src);
                break;
            }
            moved = true;
            if self.endpoint.is_perturbed() && self.endpoint.overlooks(src, &entry) {
                break;
            }
            self.take_entry(src, &entry);
        }
        moved
    }

    /// Whether a message that the log does not have has somewhere to go.
    #[cold]
    fn can_take_ahead(&mut self, src: u32, entry: &Entry) -> bool {
        if let (false, Some(Sink::Deferred(req))) =
            (entry.is_first(), self.engine.inbound[src as usize])
        {
            return self.stash(req);
        }
        self.engine.awaits(src, entry)
    }

    /// The replay is over: what was held may match now, in the order of posting.
    pub(crate) fn release_held(&mut self) {
        let contexts: Vec<u32> = self.engine.contexts.keys().copied().collect();
        for ctx in contexts {
            for posted in self.engine.queues(ctx).take_all_posted() {
                let Some(Request { op: Op::Recv(recv), .. }) = self.engine.reqs.get(posted.req)
                else {
                    continue;
                };
                let (src, tag) = (recv.src, recv.tag);
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
                let src = recv.src;
                self.engine.queues(ctx).post(src, posted);
            }
        }
        self.endpoint.door.forget_posts_up_to(self.engine.last_post);
        self.rebuild_pending();
        self.endpoint.begin_replay();
        if !self.endpoint.door.replaying() {
            self.release_held();
        }
        self.check_shared_windows();
    }

    /// Waits until `done`, moving messages meanwhile.
    pub(crate) fn wait_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Wake {
        if self.threads.are_many() {
            return self.wait_among_threads(&mut done);
        }
        let mut begun_ns = None;
        let wake = self.wait_timed(done, &mut begun_ns);
        if let (Wake::Done, Some(begun)) = (wake, begun_ns) {
            self.endpoint.counters().waited_since(begun);
        }
        wake
    }

    /// The same; says since when, if it takes long.
    fn wait_timed(
        &mut self,
        mut done: impl FnMut(&mut Self) -> bool,
        begun_ns: &mut Option<u64>,
    ) -> Wake {
        let mut idle = 0u32;
        loop {
            if done(self) {
                return Wake::Done;
            }
            if self.progress() | self.serve() || self.heed_failures() {
                idle = 0;
                continue;
            }
            if self.relieve(idle, self.endpoint.naps(idle)) {
                idle = 0;
                continue;
            }
            if let Some(seen) = self.endpoint.wait_round(idle) {
                let moved = |m: &mut Self| m.progress() || m.serve() || m.heed_failures();
                if done(self) || moved(self) || self.relieve(idle, 1) {
                    self.endpoint.disarm();
                    continue;
                }
                if self.endpoint.alone() {
                    self.endpoint.end_of_log(&self.engine.awaited());
                }
                begun_ns.get_or_insert_with(clock::now);
                let short = self.keeps_far() || self.engine.queued_total > 0;
                self.endpoint.sleep(seen, short);
            }
            if self.endpoint.woke_restored() {
                self.rebuild();
                return Wake::Restored;
            }
            idle = idle.saturating_add(1);
            if idle == TIMED_AFTER {
                begun_ns.get_or_insert_with(clock::now);
            }
        }
    }

    /// Waits until `done`, whatever happens to the process meanwhile.
    pub(crate) fn wait_for(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        while self.wait_until(&mut done) == Wake::Restored {}
    }

    /// After a fruitless poll by the program: lets others run now and then. Safe point.
    pub(crate) fn polled(&mut self) {
        self.engine.fruitless = self.engine.fruitless.wrapping_add(1);
        self.heed_failures();
        self.relieve(self.engine.fruitless, 0);
        if self.threads.are_many() {
            return self.polled_among_threads(self.engine.fruitless);
        }
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
            part_of: None,
            template: None,
            op,
        })
    }
}

impl RecvOp {
    /// The door dictates the source.
    pub(crate) fn force(&mut self, src: u32) {
        self.src = Some(src);
        self.forced = true;
    }
}
