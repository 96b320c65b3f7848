//! Matching (MPI 5.0 section 3.5): posted receives and unexpected messages of one context.
//!
//! Kept true: of the posted receives that accept a message the first posted gets it; of the
//! messages from one source that a receive accepts the first sent is taken. Named receives look at
//! one queue only. While a replay runs, wildcards whose match is not recorded (`held`) match
//! nothing, and reserve what they would match: it had not been received when the recording ended.

use std::collections::VecDeque;

use crate::consts::ANY_TAG;
use crate::handle::Handle;

/// A receive that waits for its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Posted {
    /// Number of the posting in this process.
    pub post: u64,
    pub tag: i32,
    pub req: Handle,
}

/// A message that nobody has asked for yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Number of its arrival in this process.
    pub arrival: u64,
    pub tag: i32,
    /// Slot of the message in the engine.
    pub slot: usize,
}

/// Whether a receive with `want` accepts a message with `tag`.
#[inline]
pub fn accepts(want: i32, tag: i32) -> bool {
    want == tag || want == ANY_TAG
}

/// The queues of one context.
pub struct Queues {
    /// By source (world rank).
    named: Vec<VecDeque<Posted>>,
    any: VecDeque<Posted>,
    held: Vec<Posted>,
    unexpected: Vec<VecDeque<Waiting>>,
}

impl Queues {
    /// Queues for messages from any of `ranks` world ranks.
    pub fn new(ranks: u32) -> Self {
        let n = ranks as usize;
        Queues {
            named: vec![VecDeque::new(); n],
            any: VecDeque::new(),
            held: Vec::new(),
            unexpected: vec![VecDeque::new(); n],
        }
    }

    /// Whether nothing is posted and nothing waits.
    pub fn is_idle(&self) -> bool {
        let posted = self.named.iter().all(VecDeque::is_empty) && self.any.is_empty();
        posted && self.held.is_empty() && self.unexpected.iter().all(VecDeque::is_empty)
    }

    /// All receives that wait for a message.
    pub fn posted(&self) -> impl Iterator<Item = &Posted> {
        self.named.iter().flatten().chain(&self.any).chain(&self.held)
    }

    /// How many messages wait for a receive.
    pub fn waiting(&self) -> usize {
        self.unexpected.iter().map(VecDeque::len).sum()
    }

    /// Whether nothing posted or waiting here concerns messages from `src`.
    #[inline]
    pub fn is_clear_for(&self, src: u32) -> bool {
        self.named[src as usize].is_empty()
            && self.unexpected[src as usize].is_empty()
            && self.any.is_empty()
            && self.held.is_empty()
    }

    fn reserved(&self, tag: i32) -> bool {
        self.held.iter().any(|h| accepts(h.tag, tag))
    }

    /// Takes the receive that a message from `src` goes to.
    #[inline]
    pub fn take_posted(&mut self, src: u32, tag: i32) -> Option<Posted> {
        if !self.held.is_empty() && self.reserved(tag) {
            return self.take_before_held(src, tag);
        }
        let named = &mut self.named[src as usize];
        let n = named.iter().position(|p| accepts(p.tag, tag));
        let a = self.any.iter().position(|p| accepts(p.tag, tag));
        match (n, a) {
            (Some(n), Some(a)) if self.any[a].post < named[n].post => self.any.remove(a),
            (Some(n), _) => named.remove(n),
            (None, Some(a)) => self.any.remove(a),
            (None, None) => None,
        }
    }

    /// Whether `take_posted` would find one.
    pub fn is_awaited(&self, src: u32, tag: i32) -> bool {
        let mut posted = self.named[src as usize].iter().chain(&self.any);
        self.held.is_empty() && posted.any(|p| accepts(p.tag, tag))
    }

    /// While wildcards are held, only receives posted before them may match.
    fn take_before_held(&mut self, src: u32, tag: i32) -> Option<Posted> {
        let first = self.held.iter().filter(|h| accepts(h.tag, tag)).map(|h| h.post).min()?;
        let named = &mut self.named[src as usize];
        let n = named.iter().position(|p| accepts(p.tag, tag) && p.post < first)?;
        named.remove(n)
    }

    /// The unexpected message that a new receive takes; `src` is a world rank or any.
    pub fn find_unexpected(&self, src: Option<u32>, tag: i32) -> Option<(u32, Waiting)> {
        let first_of = |s: u32| {
            self.unexpected[s as usize]
                .iter()
                .find(|w| accepts(tag, w.tag) && !self.reserved(w.tag))
                .map(|w| (s, *w))
        };
        match src {
            Some(s) => first_of(s),
            None => (0..self.unexpected.len() as u32)
                .filter_map(first_of)
                .min_by_key(|(_, w)| w.arrival),
        }
    }

    /// Takes the message in `slot` out of those that wait from `src`.
    pub fn remove_unexpected(&mut self, src: u32, slot: usize) {
        let queue = &mut self.unexpected[src as usize];
        if let Some(at) = queue.iter().position(|w| w.slot == slot) {
            queue.remove(at);
        }
    }

    pub fn push_unexpected(&mut self, src: u32, waiting: Waiting) {
        self.unexpected[src as usize].push_back(waiting);
    }

    /// Posts a receive; `src` is a world rank or any.
    #[inline]
    pub fn post(&mut self, src: Option<u32>, posted: Posted) {
        let queue = match src {
            Some(s) => &mut self.named[s as usize],
            None => &mut self.any,
        };
        // Nearly always the newest; after a replay older ones come back in between.
        let at = queue.iter().rposition(|p| p.post < posted.post).map_or(0, |i| i + 1);
        queue.insert(at, posted);
    }

    /// Posts a wildcard that matches nothing until the replay is over.
    pub fn hold(&mut self, posted: Posted) {
        self.held.push(posted);
    }

    /// Takes a posted receive out (cancel). True if it was there.
    pub fn withdraw(&mut self, req: Handle) -> bool {
        let count = |q: &Queues| {
            q.named.iter().map(VecDeque::len).sum::<usize>() + q.any.len() + q.held.len()
        };
        let before = count(self);
        self.named.iter_mut().for_each(|q| q.retain(|p| p.req != req));
        self.any.retain(|p| p.req != req);
        self.held.retain(|p| p.req != req);
        count(self) < before
    }

    /// Takes all posted receives out, in the order of their posting.
    pub fn take_all_posted(&mut self) -> Vec<Posted> {
        let mut all: Vec<Posted> = self.named.iter_mut().flat_map(|q| q.drain(..)).collect();
        all.extend(self.any.drain(..));
        all.append(&mut self.held);
        all.sort_by_key(|p| p.post);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(post: u64, tag: i32) -> Posted {
        Posted { post, tag, req: Handle(post as u32) }
    }

    #[test]
    fn the_first_posted_receive_that_accepts_gets_the_message() {
        let mut q = Queues::new(2);
        q.post(Some(1), posted(1, 7));
        q.post(None, posted(2, ANY_TAG));
        q.post(Some(1), posted(3, 8));
        assert_eq!(q.take_posted(1, 8).map(|p| p.post), Some(2));
        assert_eq!(q.take_posted(1, 8).map(|p| p.post), Some(3));
        assert_eq!(q.take_posted(0, 7), None);
        assert_eq!(q.take_posted(1, 7).map(|p| p.post), Some(1));
    }

    #[test]
    fn a_held_wildcard_reserves_what_it_would_match() {
        let mut q = Queues::new(1);
        q.post(Some(0), posted(1, 5));
        q.hold(posted(2, 5));
        q.post(Some(0), posted(3, 5));
        assert_eq!(q.take_posted(0, 5).map(|p| p.post), Some(1));
        assert_eq!(q.take_posted(0, 5), None);
        q.push_unexpected(0, Waiting { arrival: 1, tag: 5, slot: 0 });
        q.push_unexpected(0, Waiting { arrival: 2, tag: 6, slot: 1 });
        assert_eq!(q.find_unexpected(Some(0), ANY_TAG).map(|(_, w)| w.slot), Some(1));
        let all: Vec<u64> = q.take_all_posted().iter().map(|p| p.post).collect();
        assert_eq!(all, [2, 3]);
        assert_eq!(q.find_unexpected(None, ANY_TAG).map(|(_, w)| w.slot), Some(0));
    }
}
