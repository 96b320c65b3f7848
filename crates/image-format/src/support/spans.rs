//! Sets of pages as sorted stretches of addresses.
//!
//! Kept true of a [`Spans`]: its stretches are in order, not empty, and do not touch each other.

/// Addresses from `start` up to, but not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// A set of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// The stretches, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Span> + '_ {
        self.0.iter().copied()
    }

    /// How much is in it.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|s| s.end - s.start).sum()
    }

    /// Adds a stretch that begins at or after the last one begins.
    pub fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        debug_assert!(self.0.last().is_none_or(|last| last.start <= start));
        match self.0.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => self.0.push(Span { start, end }),
        }
    }

    /// A set of stretches in any order.
    pub fn of(mut list: Vec<Span>) -> Spans {
        list.sort_unstable_by_key(|s| s.start);
        let mut all = Spans::default();
        list.iter().for_each(|s| all.push(s.start, s.end));
        all
    }

    /// What is in either set.
    pub fn union(&self, other: &Spans) -> Spans {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut all = Spans::default();
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.start <= y.start => a.next(),
                (_, Some(_)) => b.next(),
                (_, None) => a.next(),
            };
            let Some(span) = next else { return all };
            all.push(span.start, span.end);
        }
    }

    /// What is in both sets.
    pub fn intersection(&self, other: &Spans) -> Spans {
        let mut all = Spans::default();
        for span in &self.0 {
            other.within(span.start, span.end).for_each(|s| all.push(s.start, s.end));
        }
        all
    }

    /// What is in this set but not in the other.
    pub fn without(&self, other: &Spans) -> Spans {
        let mut all = Spans::default();
        for span in &self.0 {
            let mut at = span.start;
            for hole in other.within(span.start, span.end) {
                all.push(at, hole.start);
                at = hole.end;
            }
            all.push(at, span.end);
        }
        all
    }

    /// The parts of it that lie between two addresses, in order.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = Span> + '_ {
        let first = self.0.partition_point(|s| s.end <= start);
        let clip = move |s: &Span| Span { start: s.start.max(start), end: s.end.min(end) };
        self.0[first..].iter().take_while(move |s| s.start < end).map(clip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Pages = BTreeSet<u64>;

    fn spans() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0u64..60, 0u64..12), 0..12)
    }

    fn both(list: &[(u64, u64)]) -> (Spans, Pages) {
        let spans = list.iter().map(|&(start, n)| Span { start, end: start + n }).collect();
        (Spans::of(spans), list.iter().flat_map(|&(start, n)| start..start + n).collect())
    }

    fn pages(spans: &Spans) -> Pages {
        spans.iter().flat_map(|s| s.start..s.end).collect()
    }

    proptest! {
        /// Held against sets of single pages.
        #[test]
        fn sets_are_sets(a in spans(), b in spans(), from in 0u64..70, n in 0u64..70) {
            let ((x, xs), (y, ys)) = (both(&a), both(&b));
            prop_assert_eq!(pages(&x), xs.clone());
            prop_assert_eq!(x.bytes(), xs.len() as u64);
            let all = [
                (x.union(&y), xs.union(&ys).copied().collect::<Pages>()),
                (x.intersection(&y), xs.intersection(&ys).copied().collect()),
                (x.without(&y), xs.difference(&ys).copied().collect()),
                (Spans::of(x.within(from, from + n).collect()),
                    xs.range(from..from + n).copied().collect()),
            ];
            for (found, expected) in all {
                prop_assert_eq!(pages(&found), expected);
                let apart = found.0.windows(2).all(|w| w[0].end < w[1].start);
                prop_assert!(apart && found.0.iter().all(|s| s.start < s.end));
            }
        }
    }
}
