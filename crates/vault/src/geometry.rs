//! Geometry: where each cell of a group's generation lies.
//!
//! The payload of a member is cut into chunks; these are dealt to the stripes in which the member
//! contributes data, in turn. So a payload that grows moves nothing, and every stripe is a code
//! over streams of unequal lengths: row after row of one chunk of each of its data members, and the
//! parity of these. A member's parity file holds its stripes one behind the other.
//!
//! Kept true: it follows from scheme, size of the group, generation and lengths of payloads alone;
//! parity is as long as the longest data of its stripe, and nothing is padded.

use crate::code::Code;
use crate::layout::{Stripe, stripes};
use crate::scheme::Scheme;

/// Bytes of a chunk: what is checked, sent and coded at once.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Longest payload of a member.
pub const MAX_PAYLOAD_BYTES: u64 = 1 << 46;

/// Which of a member's two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Data,
    Parity,
}

/// A chunk of a stripe: `position` counts its data members first, then its coding members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    pub stripe: usize,
    pub position: usize,
    pub row: u64,
}

/// Where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    pub member: usize,
    pub part: Part,
    pub offset: u64,
    pub bytes: u64,
}

/// The geometry of one group in one generation.
#[derive(Debug, Clone)]
pub struct Geometry {
    pub stripes: Vec<Stripe>,
    payloads: Vec<u64>,
    /// For each member the stripes to which it contributes.
    slots: Vec<Vec<usize>>,
    code: Option<Code>,
}

impl Geometry {
    /// `None`: there is no such generation.
    pub fn new(scheme: Scheme, generation: u64, payloads: &[u64]) -> Option<Geometry> {
        let members = payloads.len();
        let size = scheme.least()..=scheme.largest();
        if !size.contains(&members) || payloads.iter().any(|bytes| *bytes > MAX_PAYLOAD_BYTES) {
            return None;
        }
        let stripes = stripes(scheme, members, generation);
        let of = |member: usize| {
            let in_it = |(_, stripe): &(usize, &Stripe)| stripe.data.contains(&member);
            stripes.iter().enumerate().filter(in_it).map(|(number, _)| number).collect()
        };
        let slots = (0..members).map(of).collect();
        let code = stripes.first().and_then(|stripe| scheme.code(stripe.data.len()));
        Some(Geometry { stripes, payloads: payloads.to_vec(), slots, code })
    }

    /// The code of each stripe; there is none without parity.
    pub fn code(&self) -> Option<&Code> {
        self.code.as_ref()
    }

    pub fn members(&self) -> usize {
        self.payloads.len()
    }

    pub fn payload(&self, member: usize) -> u64 {
        self.payloads[member]
    }

    /// The member that holds a position of a stripe.
    pub fn holder(&self, stripe: usize, position: usize) -> usize {
        let stripe = &self.stripes[stripe];
        let coding = || stripe.coding[position - stripe.data.len()];
        stripe.data.get(position).copied().unwrap_or_else(coding)
    }

    /// The position of a member in a stripe; `None`: it has no part in it.
    pub fn position(&self, stripe: usize, member: usize) -> Option<usize> {
        let stripe = &self.stripes[stripe];
        stripe.data.iter().chain(&stripe.coding).position(|m| *m == member)
    }

    /// Bytes of a position of a stripe, over all rows.
    pub fn bytes(&self, stripe: usize, position: usize) -> u64 {
        let data = self.stripes[stripe].data.len();
        let longest = || (0..data).map(|position| self.data_bytes(stripe, position)).max();
        if position < data { self.data_bytes(stripe, position) } else { longest().unwrap_or(0) }
    }

    fn data_bytes(&self, stripe: usize, position: usize) -> u64 {
        let member = self.stripes[stripe].data[position];
        let slots = &self.slots[member];
        let slot = slots.iter().position(|s| *s == stripe).unwrap_or(0) as u64;
        let (slots, payload) = (slots.len() as u64, self.payloads[member]);
        let chunks = payload.div_ceil(CHUNK_BYTES);
        let own = (chunks + slots - 1 - slot) / slots;
        let last = chunks.wrapping_sub(1);
        let missing =
            if own > 0 && last % slots == slot { chunks * CHUNK_BYTES - payload } else { 0 };
        own * CHUNK_BYTES - missing
    }

    /// Rows of a stripe.
    pub fn rows(&self, stripe: usize) -> u64 {
        self.bytes(stripe, self.stripes[stripe].data.len()).div_ceil(CHUNK_BYTES)
    }

    /// Where a cell lies; one of 0 bytes lies nowhere.
    pub fn spot(&self, cell: Cell) -> Spot {
        let Cell { stripe, position, row } = cell;
        let start = row * CHUNK_BYTES;
        let bytes = self.bytes(stripe, position).saturating_sub(start).min(CHUNK_BYTES);
        let member = self.holder(stripe, position);
        if position < self.stripes[stripe].data.len() {
            let slots = &self.slots[member];
            let slot = slots.iter().position(|s| *s == stripe).unwrap_or(0) as u64;
            let offset = (row * slots.len() as u64 + slot) * CHUNK_BYTES;
            return Spot { member, part: Part::Data, offset, bytes };
        }
        let offset = self.parity_start(member, stripe) + start;
        Spot { member, part: Part::Parity, offset, bytes }
    }

    /// The cell of a chunk of a member's data; `None` without parity.
    pub fn cell(&self, member: usize, chunk: u64) -> Option<Cell> {
        let slots = &self.slots[member];
        if slots.is_empty() {
            return None;
        }
        let stripe = slots[(chunk % slots.len() as u64) as usize];
        let position = self.position(stripe, member)?;
        Some(Cell { stripe, position, row: chunk / slots.len() as u64 })
    }

    /// The stripes of which a member holds parity.
    pub fn coded(&self, member: usize) -> impl Iterator<Item = usize> {
        let holds = move |stripe: &usize| self.stripes[*stripe].coding.contains(&member);
        (0..self.stripes.len()).filter(holds)
    }

    fn parity_start(&self, member: usize, stripe: usize) -> u64 {
        let before = self.coded(member).take_while(|s| *s < stripe);
        before.map(|s| self.bytes(s, self.stripes[s].data.len())).sum()
    }

    /// Bytes of all parity that a member holds.
    pub fn parity_bytes(&self, member: usize) -> u64 {
        self.parity_start(member, self.stripes.len())
    }

    /// Chunks of parity that a member holds.
    pub fn parity_chunks(&self, member: usize) -> u64 {
        self.coded(member).map(|stripe| self.rows(stripe)).sum()
    }

    /// The cells of a member's parity file, in order, each with its number there.
    pub fn parity_cells(&self, member: usize) -> impl Iterator<Item = Cell> {
        self.coded(member).flat_map(move |stripe| {
            let position = self.position(stripe, member).unwrap_or(0);
            (0..self.rows(stripe)).map(move |row| Cell { stripe, position, row })
        })
    }

    /// The number of a cell of parity among those of its member.
    pub fn parity_number(&self, cell: Cell) -> usize {
        let member = self.holder(cell.stripe, cell.position);
        let before = self.coded(member).take_while(|s| *s < cell.stripe);
        (before.map(|s| self.rows(s)).sum::<u64>() + cell.row) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u64 = CHUNK_BYTES;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Every byte of every payload is in one cell, and parity is as long as the longest data.
        #[test]
        fn cells_cover_payloads_once(
            scheme in prop::sample::select(vec!["rs:4+2", "rs:2+1", "xor:8", "partner", "rs:1+2"]),
            payloads in prop::collection::vec(0..12 * CHUNK, 3),
            more in prop::collection::vec(0..12 * CHUNK, 0..4),
            generation in 0u64..9,
        ) {
            let scheme: Scheme = scheme.parse().unwrap();
            let mut payloads = [payloads, more].concat();
            payloads.truncate(scheme.most().unwrap_or(9));
            let geometry = Geometry::new(scheme, generation, &payloads).unwrap();
            let mut covered = vec![0; payloads.len()];
            for (number, stripe) in geometry.stripes.iter().enumerate() {
                let mut longest = 0;
                for position in 0..stripe.data.len() {
                    let mut bytes = 0;
                    for row in 0..geometry.rows(number) {
                        let cell = Cell { stripe: number, position, row };
                        let spot = geometry.spot(cell);
                        bytes += spot.bytes;
                        if spot.bytes > 0 {
                            let chunk = spot.offset / CHUNK;
                            prop_assert_eq!(spot.offset % CHUNK, 0);
                            prop_assert_eq!(geometry.cell(spot.member, chunk), Some(cell));
                            let expected = payloads[spot.member] - spot.offset;
                            prop_assert_eq!(spot.bytes, expected.min(CHUNK));
                        }
                    }
                    covered[stripe.data[position]] += bytes;
                    longest = longest.max(bytes);
                }
                let parity = geometry.bytes(number, stripe.data.len());
                prop_assert_eq!(parity, longest);
            }
            prop_assert_eq!(&covered, &payloads);
            for member in 0..payloads.len() {
                let mut end = 0;
                for (number, cell) in geometry.parity_cells(member).enumerate() {
                    let spot = geometry.spot(cell);
                    prop_assert_eq!((spot.member, spot.offset), (member, end));
                    prop_assert_eq!(geometry.parity_number(cell), number);
                    end += spot.bytes;
                }
                prop_assert_eq!(end, geometry.parity_bytes(member));
            }
        }
    }

    #[test]
    fn parity_is_a_kth_of_the_data_for_each_m() {
        let geometry = Geometry::new("rs:4+2".parse().unwrap(), 3, &[400 * CHUNK; 6]).unwrap();
        let parity: Vec<u64> = (0..6).map(|member| geometry.parity_bytes(member)).collect();
        assert_eq!(parity, [200 * CHUNK; 6]);
        let unlike = [400 * CHUNK, 0, 0, 0, 0, 0];
        let geometry = Geometry::new("rs:4+2".parse().unwrap(), 0, &unlike).unwrap();
        let parity: u64 = (0..6).map(|member| geometry.parity_bytes(member)).sum();
        assert_eq!(parity, 800 * CHUNK, "nothing is padded");
    }

    #[test]
    fn groups_of_a_wrong_size_are_refused() {
        assert!(Geometry::new("rs:4+2".parse().unwrap(), 0, &[1; 7]).is_none());
        assert!(Geometry::new("rs:4+2".parse().unwrap(), 0, &[1; 2]).is_none());
        assert!(Geometry::new(Scheme::Partner, 0, &[1]).is_none());
        assert!(Geometry::new(Scheme::Partner, 0, &[1, MAX_PAYLOAD_BYTES + 1]).is_none());
        let local = Geometry::new(Scheme::Local, 0, &[5]).unwrap();
        assert_eq!((local.cell(0, 0), local.parity_bytes(0)), (None, 0));
    }
}
