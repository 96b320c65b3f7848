//! One stream at one end: what was taken and not sent, what came and was not delivered, and the
//! credit in both directions.
//!
//! Kept true: what the other end may still send, what came and what was delivered since the last
//! grant are together the window.

use std::collections::VecDeque;

use crate::limits::Limits;

#[derive(Debug)]
pub(crate) struct Stream {
    /// Both ends know of it: bytes may be taken.
    pub open: bool,
    pub out: VecDeque<u8>,
    /// Bytes that may be sent.
    pub credit: u64,
    /// Nothing more is taken.
    pub closing: bool,
    pub end_sent: bool,
    /// It waits for its turn.
    pub listed: bool,
    pub input: VecDeque<u8>,
    /// The other end's end came, and was delivered.
    pub ended: bool,
    pub end_seen: bool,
    /// Bytes that the other end may still send.
    granted: u64,
    /// Delivered since the last grant.
    delivered: u64,
    window: u64,
    /// Delivered since the window grew.
    moved: u64,
}

impl Stream {
    pub fn new(limits: &Limits) -> Stream {
        let window = limits.window_bytes;
        Stream {
            open: false,
            out: VecDeque::new(),
            credit: window,
            closing: false,
            end_sent: false,
            listed: false,
            input: VecDeque::new(),
            ended: false,
            end_seen: false,
            granted: window,
            delivered: 0,
            window,
            moved: 0,
        }
    }

    /// Whether it has something to send, and may.
    pub fn can_send(&self) -> bool {
        if self.out.is_empty() {
            return self.closing && !self.end_sent;
        }
        self.credit > 0
    }

    /// Nothing is to come or to go any more.
    pub fn is_over(&self) -> bool {
        self.end_sent && self.end_seen
    }

    /// Takes what came. False: it is more than was granted, or comes behind the end.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let count = bytes.len() as u64;
        if self.ended || count > self.granted {
            return false;
        }
        self.granted -= count;
        self.input.extend(bytes);
        true
    }

    /// So many bytes of the input were delivered. Returns what is to be granted, and how much of
    /// that is growth, which is at most `budget`.
    pub fn deliver(&mut self, count: usize, limits: &Limits, budget: u64) -> Option<(u32, u64)> {
        if count == 0 {
            self.end_seen = self.ended && self.input.is_empty();
            return None;
        }
        self.input.drain(..count);
        self.delivered += count as u64;
        self.moved += count as u64;
        if self.ended || self.delivered < self.window.div_ceil(2) {
            return None;
        }
        let mut growth = 0;
        if self.moved >= self.window {
            growth = self.window.min(limits.most_window_bytes.saturating_sub(self.window));
            growth = growth.min(budget);
            self.moved = 0;
        }
        let grant = std::mem::take(&mut self.delivered) + growth;
        self.window += growth;
        self.granted += grant;
        debug_assert_eq!(self.granted + self.input.len() as u64, self.window);
        Some((u32::try_from(grant).unwrap_or(u32::MAX), growth))
    }

    /// By how much its window has grown.
    pub fn growth(&self, limits: &Limits) -> u64 {
        self.window - limits.window_bytes
    }
}
