//! Payload that waits for the call that completes its receive.
//!
//! Kept true, where ranks may be repeated: the program's buffer changes in the call in which the
//! program learns that the receive is complete, and in no call before, whenever the message came.
//! In a run an answer cannot be there before what it answers was sent; in a replay it is in the log
//! from the beginning. So a receive that is posted only finds its message: matching, status and
//! completeness are known as soon as it is there, and its payload stays in the log. A call that
//! cannot return before a receive is complete *opens* it: what comes then goes straight into place.
//!
//! The log holds what is kept until it was copied, so images need nothing of it. Where it cannot
//! (the sender waits for room, or the message came past the log) the payload is *stashed* in
//! memory of the library's own, which is in the image: no program can see that.
//!
//! A receive that the program freed has no such call. It is completed at the end of a call, the
//! number of which is an outcome like others.

use std::collections::BTreeMap;

use eyrie_ledger::door::Freed;
use eyrie_ledger::entry::{REMOTE, SYNC};

use crate::engine::Sink;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::receiving::Late;
use crate::request::{Op, Payload, RecvOp, Request, State, Unexpected};

/// Rounds of waiting in vain, or polls, between two looks whether somebody waits for room.
const LOOK_EVERY: u32 = 64;
/// Sleeps after which what came from other nodes is looked at: of these nobody tells who waits.
const NAPS: u32 = 8;
/// Polls likewise.
const POLLS: u32 = 64 * LOOK_EVERY;
/// What a stashed message takes besides its bytes, about.
const STASH_BYTES: u64 = 256;
/// How many times as much of the log must be let go.
const WORTH: u64 = 8;

impl RecvOp {
    /// Whether the program's buffer has yet to get what has come.
    #[inline]
    fn is_pending(&self) -> bool {
        !matches!(self.payload, Payload::Placed)
    }
}

impl Machine {
    fn recv_of(&mut self, req: Handle) -> Option<&mut RecvOp> {
        match self.engine.reqs.get_mut(req) {
            Some(Request { op: Op::Recv(recv), .. }) => Some(recv),
            _ => None,
        }
    }

    /// Whether what comes for the receive may go to the program's buffer.
    #[inline]
    pub(crate) fn is_open(&mut self, req: Handle) -> bool {
        self.recv_of(req).is_none_or(|recv| recv.open)
    }

    /// The payload of the receive, which has met its message, stays in the log.
    pub(crate) fn keep_payload(&mut self, req: Handle, message: Unexpected) {
        let (src, whole) = (message.src, message.whole);
        if let Some(recv) = self.recv_of(req) {
            recv.payload = Payload::Deferred(message);
            self.engine.deferred += 1;
        }
        if whole {
            self.finish(req);
        } else {
            self.engine.inbound[src as usize] = Some(Sink::Deferred(req));
        }
    }

    /// The last entry of a kept message has come.
    pub(crate) fn kept_whole(&mut self, req: Handle) {
        if let Some(RecvOp { payload: Payload::Deferred(message), .. }) = self.recv_of(req) {
            message.whole = true;
        }
        self.finish(req);
    }

    /// Takes the message that is kept for the receive, which is not any more.
    fn take_payload(&mut self, req: Handle) -> Option<Late> {
        let recv = self.recv_of(req).filter(|recv| matches!(recv.payload, Payload::Deferred(_)))?;
        let payload = std::mem::replace(&mut recv.payload, Payload::Placed);
        self.engine.deferred -= 1;
        match payload {
            Payload::Deferred(message) => Some(Late::new(req, message)),
            _ => None,
        }
    }

    /// The call that is under way returns when the request is complete, and not before: what comes
    /// may go straight into place.
    #[inline]
    pub(crate) fn open(&mut self, req: Handle) {
        match self.engine.reqs.get_mut(req) {
            Some(Request { op: Op::Recv(recv), state: State::Active, .. }) if !recv.open => {
                self.open_receive(req);
            }
            Some(Request { op: Op::Parts(parts), .. }) if !parts.open => {
                parts.open = true;
                let receives = parts.receives.clone();
                receives.into_iter().for_each(|part| self.open(part));
            }
            _ => {}
        }
    }

    fn open_receive(&mut self, req: Handle) {
        let Some(recv) = self.recv_of(req) else { return };
        recv.open = true;
        if matches!(recv.payload, Payload::Stashed(_)) {
            return self.unstash(req);
        }
        if let Some(mut late) = self.take_payload(req)
            && !self.take_deferred(&mut late)
        {
            self.engine.late.push(late);
        }
    }

    /// What is stashed goes into place.
    fn unstash(&mut self, req: Handle) {
        let Some(recv) = self.recv_of(req) else { return };
        if let Payload::Stashed(bytes) = std::mem::replace(&mut recv.payload, Payload::Placed) {
            // SAFETY: the buffer is the program's promise with the receive.
            unsafe { recv.data.scatter(0, &bytes) };
        }
    }

    /// The program learns that the request, which is complete, is so: its payload goes into place.
    #[inline]
    pub(crate) fn place(&mut self, req: Handle) {
        match self.engine.reqs.get_mut(req) {
            Some(Request { op: Op::Recv(recv), .. }) if recv.is_pending() => {
                self.place_receive(req);
            }
            Some(Request { op: Op::Parts(parts), .. }) if !parts.receives.is_empty() => {
                let receives = std::mem::take(&mut parts.receives);
                for part in receives {
                    self.place(part);
                    self.engine.reqs.remove(part);
                }
            }
            _ => {}
        }
    }

    fn place_receive(&mut self, req: Handle) {
        match self.take_payload(req) {
            // A rank that was restored elsewhere may have to wait until the log is there.
            Some(mut late) => {
                if !self.take_deferred(&mut late) {
                    self.wait_for(|m| m.take_deferred(&mut late));
                }
            }
            None => self.unstash(req),
        }
    }

    // ---- what the log cannot keep

    /// Takes what has come of a kept message out of the log. False: it is not here (again) yet.
    pub(crate) fn stash(&mut self, req: Handle) -> bool {
        let front = match self.recv_of(req) {
            Some(RecvOp { payload: Payload::Deferred(message), .. }) => message.src,
            _ => return true,
        };
        let front = self.endpoint.front(front);
        let Some(recv) = self.recv_of(req) else { return true };
        let bytes = recv.len.min(recv.data.bytes) as usize;
        let mut room = Vec::new();
        let here = match &mut recv.payload {
            Payload::Deferred(message) => {
                message.reader.rebuild();
                is_here(message, front)
            }
            _ => true,
        };
        // Without memory the log keeps it, as long as it can.
        if !here || room.try_reserve_exact(bytes).is_err() {
            return false;
        }
        let Some(mut late) = self.take_payload(req) else { return true };
        if let Some(recv) = self.recv_of(req) {
            recv.payload = Payload::Stashed(room);
        }
        if !self.take_deferred(&mut late) {
            self.engine.late.push(late);
        }
        true
    }

    /// Whether what is kept is far behind what came from another node: of senders there nobody
    /// tells that they wait.
    pub(crate) fn keeps_far(&self) -> bool {
        let far = |src: u32| {
            let first = self.endpoint.first_kept(src).filter(|_| self.endpoint.is_far(src));
            first.is_some_and(|start| self.endpoint.holds_up(src, start, true))
        };
        let linked = self.endpoint.is_linked();
        linked && (self.engine.deferred > 0 || (0..self.endpoint.size()).any(far))
    }

    /// Looks, after so many fruitless rounds of waiting or polls, whether what is kept holds a
    /// sender up, and stashes that. True if it did.
    #[inline]
    pub(crate) fn relieve(&mut self, fruitless: u32, naps: u32) -> bool {
        let looks = naps > 0 || fruitless % LOOK_EVERY == LOOK_EVERY - 1;
        (self.engine.deferred > 0 || self.engine.has_unexpected())
            && looks
            && self.relieve_senders(naps >= NAPS || fruitless % POLLS == POLLS - 1)
    }

    #[cold]
    fn relieve_senders(&mut self, long: bool) -> bool {
        let mut moved = self.stash_unexpected(long);
        let kept = self.engine.reqs.iter().filter_map(|(h, r)| match &r.op {
            Op::Recv(RecvOp { payload: Payload::Deferred(m), start, .. }) => {
                Some((h, m.src, *start))
            }
            _ => None,
        });
        let held: Vec<Handle> = kept
            .filter(|(_, src, start)| self.endpoint.holds_up(*src, *start, long))
            .map(|(h, ..)| h)
            .collect();
        // Each of them, also behind one that has moved.
        for h in held {
            moved |= self.stash(h);
        }
        moved
    }

    /// The same for messages that no receive has met: they hold what was sent behind them, and that
    /// may be what the program waits for. Kept true: much more is let go than is copied, so that a
    /// sender of messages that nobody wants still waits.
    fn stash_unexpected(&mut self, long: bool) -> bool {
        let mut moved = false;
        for src in 0..self.endpoint.size() {
            let first = self.endpoint.first_kept(src);
            if first.is_some_and(|start| self.endpoint.holds_up(src, start, long)) {
                moved |= self.stash_from(src);
            }
        }
        moved
    }

    fn stash_from(&mut self, src: u32) -> bool {
        let kept = self.endpoint.kept(src);
        let front = self.endpoint.front(src);
        let unexpected: BTreeMap<u64, (usize, u64)> = (0..)
            .zip(&self.engine.unexpected)
            .filter_map(|(slot, m)| Some((slot, m.as_ref()?)))
            .filter(|(_, m)| m.src == src && m.whole && m.stashed.is_none())
            .map(|(slot, m)| (m.reader.pos, (slot, m.len)))
            .collect();
        // The longest run of them from the first on that is worth it.
        let (mut cost, mut run) = (0, 0);
        for (at, start) in kept.iter().enumerate() {
            let Some((_, len)) = unexpected.get(start) else { break };
            cost += len + STASH_BYTES;
            let next = kept.get(at + 1).copied().unwrap_or(front);
            if next - kept[0] >= WORTH * cost {
                run = at + 1;
            }
        }
        let mut moved = false;
        for start in &kept[..run] {
            let Some((slot, _)) = unexpected.get(start) else { break };
            let Some(Some(message)) = self.engine.unexpected.get(*slot) else { break };
            let Some(bytes) = self.copy_of(message) else { break };
            if let Some(Some(message)) = self.engine.unexpected.get_mut(*slot) {
                message.stashed = Some(bytes);
            }
            self.endpoint.release(src, *start);
            moved = true;
        }
        moved
    }

    /// A message's bytes, from the log. None: its sender waits for the match, which is told there,
    /// or there is no memory, or it is not in the log again yet.
    fn copy_of(&self, message: &Unexpected) -> Option<Vec<u8>> {
        let (mut reader, front) = (message.reader, self.endpoint.front(message.src));
        reader.rebuild();
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(message.len as usize).ok()?;
        loop {
            let entry = reader.peek().ok().flatten()?;
            if reader.pos >= front || entry.flags & (SYNC | REMOTE) != 0 {
                return None;
            }
            if entry.frag > 0 {
                // SAFETY: `peek` checked that the entry holds `frag` bytes; it stays until the
                // channel's `need` passes it, which happens after this.
                let piece =
                    unsafe { std::slice::from_raw_parts(entry.payload, entry.frag as usize) };
                bytes.extend_from_slice(piece);
            }
            reader.pass(&entry);
            if entry.is_last() {
                return Some(bytes);
            }
        }
    }

    /// A receive has met a message that is stashed.
    pub(crate) fn take_stashed(&mut self, req: Handle, mut bytes: Vec<u8>) {
        let Some(recv) = self.recv_of(req) else { return };
        bytes.truncate(recv.data.bytes as usize);
        recv.got = bytes.len() as u64;
        recv.payload = Payload::Stashed(bytes);
        if recv.open {
            self.unstash(req);
        }
        self.finish(req);
    }

    /// What is not here comes past the log.
    pub(crate) fn stash_from_start(&mut self, req: Handle) {
        let Some(recv) = self.recv_of(req) else { return };
        let mut room = Vec::new();
        // Without memory for all of it now it may still be there when it comes.
        let _ = room.try_reserve_exact(recv.len.min(recv.data.bytes) as usize);
        recv.payload = Payload::Stashed(room);
    }

    /// After a restore: senders that repeat themselves may wait for matches that they were told of.
    #[cold]
    pub(crate) fn rebuild_pending(&mut self) {
        let kept = self.engine.reqs.iter().filter(|(_, r)| {
            matches!(&r.op, Op::Recv(RecvOp { payload: Payload::Deferred(_), .. }))
        });
        self.engine.unmet = kept.map(|(h, _)| h).collect();
        let (freed, calls) = (&self.engine.freed, self.engine.calls);
        let ahead = |id, call| call > calls || freed.iter().any(|(_, f)| *f == id);
        self.endpoint.door.forget_freed(ahead);
        self.endpoint.door.forget_applied_up_to(self.engine.applied);
        self.rebuild_turns();
    }

    /// Tells senders of matches as soon as the log has the messages again.
    #[cold]
    pub(crate) fn tell_matched(&mut self) {
        let mut unmet = std::mem::take(&mut self.engine.unmet);
        unmet.retain(|req| {
            let Some(RecvOp { payload: Payload::Deferred(message), .. }) = self.recv_of(*req)
            else {
                return false;
            };
            let (src, reader) = (message.src, message.reader);
            !self.acknowledge_deferred(src, reader)
        });
        self.engine.unmet = unmet;
    }

    // ---- receives that the program has freed

    /// The program gives up a request; whether it receives something that has to wait.
    pub(crate) fn free_later(&mut self, req: Handle) -> bool {
        let post = |r: &Request| match &r.op {
            Op::Recv(recv) => Some(recv.post),
            _ => None,
        };
        let id = self.engine.reqs.get(req).and_then(|r| match &r.op {
            Op::Parts(parts) => post(self.engine.reqs.get(*parts.receives.first()?)?),
            _ => post(r),
        });
        let Some(id) = id.filter(|_| self.endpoint.is_repeatable()) else { return false };
        self.engine.freed.push((req, id));
        true
    }

    /// At the end of a call: freed receives that are complete, as chance or the recording has it.
    #[cold]
    pub(crate) fn settle_freed(&mut self) {
        self.progress();
        let call = self.engine.calls;
        for (req, id) in std::mem::take(&mut self.engine.freed) {
            let settle = match self.endpoint.door.ask_freed(id, call) {
                Freed::Live => {
                    // What is not recorded was not in place when the last message was sent.
                    let done = self.engine.is_done(req) && !self.endpoint.replaying();
                    if done {
                        self.endpoint.door.record_freed(id, call);
                    }
                    done
                }
                Freed::Now => {
                    self.await_request(req);
                    true
                }
                Freed::Later => false,
            };
            if settle {
                self.place(req);
                self.engine.reqs.remove(req);
            } else {
                self.engine.freed.push((req, id));
            }
        }
    }
}

/// Whether the log has all of the message that came before `front`.
fn is_here(message: &Unexpected, front: u64) -> bool {
    let mut reader = message.reader;
    loop {
        match reader.peek() {
            Ok(Some(entry)) if reader.pos < front => {
                reader.pass(&entry);
                if entry.is_last() {
                    return true;
                }
            }
            _ => return reader.pos >= front,
        }
    }
}
