//! How an entry gets from the log to the receive that it is for.
//!
//! A message that nobody has asked for stays in the log; only its place is remembered. The match
//! of a wildcard receive is recorded here, before anything of it can be seen.

use eyrie_channel::Endpoint;
use eyrie_ledger::door::Post;
use eyrie_ledger::entry::{REMOTE, SYNC};
use eyrie_ledger::reader::{Entry, Reader};

use crate::comm::CONTROL_CTX;
use crate::engine::Sink;
use crate::error::class;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::matching::{Posted, Waiting};
use crate::request::{Op, Payload, RecvOp, Request, State, Unexpected};
use crate::sending::SINGLE_COPY_BYTES;

impl Late {
    pub(crate) fn new(req: Handle, message: Unexpected) -> Late {
        let start = message.reader.pos;
        Late { req, message, start }
    }
}

impl Machine {
    pub(crate) fn take_entry(&mut self, src: u32, entry: &Entry) {
        if entry.is_first() {
            let posted = self.engine.queues(entry.env.ctx).take_posted(src, entry.env.tag);
            let Some(posted) = posted else { return self.take_unexpected_entry(src, entry) };
            let len = self.endpoint.message_bytes(entry);
            let start = self.endpoint.front(src);
            self.begin(posted.req, src, entry.env.crank, entry.env.tag, (len, start));
            if matched_is_enough(entry) {
                self.endpoint.acknowledge(src, entry);
            }
            if len > 0 && !self.is_open(posted.req) {
                if !entry.is_early() {
                    let message = self.deferred(src, entry);
                    return self.keep_payload(posted.req, message);
                }
                self.stash_from_start(posted.req);
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
            Some(Sink::Deferred(req)) => {
                if entry.is_last() {
                    self.kept_whole(req);
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

    /// The message that begins with this entry stays in the log.
    fn deferred(&mut self, src: u32, entry: &Entry) -> Unexpected {
        let len = self.endpoint.message_bytes(entry);
        let reader = self.endpoint.keep(src, entry);
        let (ctx, tag, crank) = (entry.env.ctx, entry.env.tag, entry.env.crank);
        Unexpected { src, ctx, tag, crank, len, reader, whole: entry.is_last(), stashed: None }
    }

    fn take_unexpected_entry(&mut self, src: u32, entry: &Entry) {
        if self.failures.is_closed(entry.env.ctx) {
            // Nobody will ask for it, and it would take its sender's room.
            return self.endpoint.consume(src, entry);
        }
        let message = self.deferred(src, entry);
        let (ctx, tag, whole) = (message.ctx, message.tag, message.whole);
        let slot = self.engine.store_unexpected(message);
        self.failures.mail |= ctx == CONTROL_CTX;
        self.engine.arrivals += 1;
        let arrival = self.engine.arrivals;
        self.engine.queues(ctx).push_unexpected(src, Waiting { arrival, tag, slot });
        if !whole {
            self.engine.inbound[src as usize] = Some(Sink::Unexpected(slot));
        }
    }

    /// A receive has met its message, so long and starting there in its channel: records the
    /// match if it was left to chance.
    fn begin(&mut self, req: Handle, src: u32, crank: u32, tag: i32, (len, start): (u64, u64)) {
        self.endpoint.count_received(len);
        let Some(Request { op: Op::Recv(recv), status, error, .. }) = self.engine.reqs.get_mut(req)
        else {
            return;
        };
        recv.matched = true;
        recv.len = len;
        recv.start = start;
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
            // channel's `need` passes it, which happens after this.
            let bytes = unsafe { std::slice::from_raw_parts(entry.payload, entry.frag as usize) };
            if let Payload::Stashed(stash) = &mut recv.payload {
                let room = recv.data.bytes.saturating_sub(recv.got).min(entry.frag);
                stash.extend_from_slice(&bytes[..room as usize]);
            } else {
                if !entry.is_last() && entry.env.len >= SINGLE_COPY_BYTES {
                    view(&mut self.endpoint, src, recv);
                }
                let known = recv.viewed.saturating_sub(recv.got).min(entry.frag);
                // SAFETY: the buffer is the program's promise with the receive.
                unsafe { recv.data.scatter(recv.got + known, &bytes[known as usize..]) };
            }
            recv.got += entry.frag;
        }
        if entry.is_last() && !self.engine.is_done(req) {
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
        self.threads.stir();
        if r.part_of.is_some() {
            return self.part_done(req);
        }
        if r.orphan {
            self.engine.reqs.remove(req);
        }
    }

    /// Lets a receive take an unexpected message, as far as that has come.
    pub(crate) fn consume_unexpected(&mut self, req: Handle, mut message: Unexpected) {
        let src = message.src;
        let start = message.reader.pos;
        self.begin(req, src, message.crank, message.tag, (message.len, start));
        if let Some(bytes) = message.stashed.take() {
            return self.take_stashed(req, bytes);
        }
        if message.len > 0 && !self.is_open(req) {
            let here = self.acknowledge_deferred(src, message.reader);
            if !here {
                self.engine.unmet.push(req);
            }
            return self.keep_payload(req, message);
        }
        let mut late = Late::new(req, message);
        if !self.take_deferred(&mut late) {
            self.engine.late.push(late);
        }
    }

    /// Takes what has come since of messages that were not in the log. True if one is complete.
    #[cold]
    pub(crate) fn take_late(&mut self) -> bool {
        let before = std::mem::take(&mut self.engine.late);
        let count = before.len();
        let left =
            before.into_iter().filter_map(|mut l| (!self.take_deferred(&mut l)).then_some(l));
        let left: Vec<Late> = left.collect();
        let moved = left.len() < count;
        self.engine.late.extend(left);
        moved
    }

    /// Takes a kept message as far as that had come. False: it had come further than the log goes.
    pub(crate) fn take_deferred(&mut self, late: &mut Late) -> bool {
        let (req, src) = (late.req, late.message.src);
        let reader = &mut late.message.reader;
        reader.rebuild();
        let front = self.endpoint.front(src);
        // Entries up to the channel's front are ours to read; those behind it come by `poll`. The
        // front may stand behind padding whose successor was not there when it got there: so the
        // question is where the entry lies, not where the reader stood before it looked.
        loop {
            let Ok(Some(entry)) = reader.peek() else {
                if reader.pos >= front {
                    break;
                }
                return false;
            };
            if reader.pos >= front {
                break;
            }
            if entry.is_first() && matched_is_enough(&entry) {
                self.endpoint.acknowledge(src, &entry);
            }
            self.deliver(req, src, &entry);
            reader.pass(&entry);
            if entry.is_last() {
                break;
            }
        }
        if !late.message.whole {
            self.engine.inbound[src as usize] = Some(Sink::Request(req));
        }
        self.endpoint.release(src, late.start);
        true
    }

    /// The match is what a sender of a kept message may wait for. False: it is not in the log again
    /// yet.
    pub(crate) fn acknowledge_deferred(&mut self, src: u32, mut reader: Reader) -> bool {
        reader.rebuild();
        let Ok(Some(entry)) = reader.peek() else { return false };
        if matched_is_enough(&entry) && reader.pos < self.endpoint.front(src) {
            self.endpoint.acknowledge(src, &entry);
        }
        true
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

    pub(crate) fn match_or_queue(&mut self, src: Option<u32>, ctx: u32, tag: i32, posted: Posted) {
        let found = self.engine.queues(ctx).find_unexpected(src, tag);
        match found.and_then(|(_, w)| self.engine.take_unexpected(w.slot)) {
            Some(message) => self.consume_unexpected(posted.req, message),
            None => self.engine.queues(ctx).post(src, posted),
        }
    }
}

/// A receive of a message that had come before the rank was restored on another node, and that is
/// not in the log there yet: its sender repeats itself, or it is on its way.
pub(crate) struct Late {
    req: Handle,
    /// The reader stands before what was not taken yet.
    pub message: Unexpected,
    /// Where the message begins.
    start: u64,
}

impl Late {
    pub(crate) fn is_of(&self, req: Handle) -> bool {
        self.req == req
    }
}

/// Reads ahead in the sender's memory as far as the message is shown there.
fn view(endpoint: &mut Endpoint, src: u32, recv: &mut RecvOp) {
    let to = recv.len.min(recv.data.bytes);
    let from = recv.viewed.max(recv.got);
    let Some(at) = recv.data.flat else { return };
    if endpoint.shows() && from < to {
        // SAFETY: `to` is within the program's buffer; what is read too much is overwritten from
        // the log before the receive is complete.
        recv.viewed = unsafe { endpoint.read_offered(src, recv.start, at, from, to) };
    }
}

/// Whether the sender waits for the match; a remote message is acknowledged when it was read.
fn matched_is_enough(entry: &Entry) -> bool {
    entry.flags & (SYNC | REMOTE) == SYNC
}
