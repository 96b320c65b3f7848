//! The first difference between a message and its repetition, in words: which message, where in it,
//! both values, and what they look like.
//!
//! The guess is one, and says so: it looks at the 8 bytes, and the 4, around the first difference.

use std::fmt;

use crate::entry::{CALL_SHIFT, CALLS as CALL_BITS, Envelope, FIRST, LAST};

/// Bytes shown of each version.
const SHOWN_BYTES: usize = 16;
/// What a number is held for a time of day in: 2001 to 2065, in seconds.
const EPOCH_S: std::ops::Range<f64> = 1.0e9..3.0e9;
/// Where Linux puts programs, libraries and stacks: from 64 TiB to 128 TiB.
const ADDRESSES: std::ops::Range<u64> = 0x4000_0000_0000..0x8000_0000_0000;
/// Relative difference of results that were rounded otherwise.
const ROUNDING: f64 = 1e-6;
/// Most that a time, measured twice, is held to differ by, in seconds.
const APART_S: f64 = 1e5;

/// Functions that send, by number; 0: another one. The order is part of no format.
const CALLS: &[&str] = &[
    "",
    "MPI_Send",
    "MPI_Ssend",
    "MPI_Bsend",
    "MPI_Rsend",
    "MPI_Isend",
    "MPI_Issend",
    "MPI_Ibsend",
    "MPI_Irsend",
    "MPI_Start",
    "MPI_Startall",
    "MPI_Sendrecv",
    "MPI_Sendrecv_replace",
    "MPI_Isendrecv",
    "MPI_Isendrecv_replace",
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Gather",
    "MPI_Gatherv",
    "MPI_Scatter",
    "MPI_Scatterv",
    "MPI_Allgather",
    "MPI_Allgatherv",
    "MPI_Alltoall",
    "MPI_Alltoallv",
    "MPI_Alltoallw",
    "MPI_Reduce",
    "MPI_Allreduce",
    "MPI_Reduce_scatter",
    "MPI_Reduce_scatter_block",
    "MPI_Scan",
    "MPI_Exscan",
    "MPI_Ibarrier",
    "MPI_Ibcast",
    "MPI_Igather",
    "MPI_Igatherv",
    "MPI_Iscatter",
    "MPI_Iscatterv",
    "MPI_Iallgather",
    "MPI_Iallgatherv",
    "MPI_Ialltoall",
    "MPI_Ialltoallv",
    "MPI_Ialltoallw",
    "MPI_Ireduce",
    "MPI_Iallreduce",
    "MPI_Ireduce_scatter",
    "MPI_Ireduce_scatter_block",
    "MPI_Iscan",
    "MPI_Iexscan",
    "MPI_Neighbor_allgather",
    "MPI_Neighbor_allgatherv",
    "MPI_Neighbor_alltoall",
    "MPI_Neighbor_alltoallv",
    "MPI_Neighbor_alltoallw",
    "MPI_Ineighbor_allgather",
    "MPI_Ineighbor_allgatherv",
    "MPI_Ineighbor_alltoall",
    "MPI_Ineighbor_alltoallv",
    "MPI_Ineighbor_alltoallw",
    "MPI_Comm_dup",
    "MPI_Comm_split",
    "MPI_Comm_create",
    "MPI_Comm_create_group",
    "MPI_Comm_free",
    "MPI_Intercomm_create",
    "MPI_Cart_create",
    "MPI_Graph_create",
    "MPI_Dist_graph_create",
    "MPI_Dist_graph_create_adjacent",
    "MPI_File_open",
    "MPI_File_close",
    "MPI_Finalize",
];

/// Number of a function, as it stands in an entry's flags.
pub fn call_bits(name: &str) -> u32 {
    let name = name.strip_prefix('P').unwrap_or(name);
    let name = name.strip_suffix("_c").unwrap_or(name);
    CALLS.iter().position(|known| *known == name).unwrap_or(0) as u32 * (1 << CALL_SHIFT)
}

/// The function that stands in an entry's flags; empty: not known.
pub fn call_name(flags: u32) -> &'static str {
    CALLS.get(((flags & CALL_BITS) >> CALL_SHIFT) as usize).copied().unwrap_or_default()
}

/// A message of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePlace<'a> {
    pub src: u32,
    pub dst: u32,
    /// Number in its channel, from 1 on.
    pub number: u64,
    /// The function of MPI that sent it; empty: not known.
    pub call: &'a str,
    pub env: Envelope,
}

impl fmt::Display for MessagePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessagePlace { src, dst, number, call, env } = self;
        write!(f, "channel {src} -> {dst}, message {number} (")?;
        if !call.is_empty() {
            let name = call.strip_prefix('P').filter(|name| name.starts_with("MPI_"));
            write!(f, "{}, ", name.unwrap_or(call))?;
        }
        write!(f, "{} bytes, tag {}, {})", env.len, env.tag, communicator(env.ctx))
    }
}

/// The communicator that a context is of. Contexts go by two: messages of the program, and those
/// that collectives are made of.
fn communicator(ctx: u32) -> String {
    let name = match ctx & !1 {
        0 => String::from("MPI_COMM_WORLD"),
        2 => String::from("MPI_COMM_SELF"),
        ctx => format!("a communicator with context {ctx}"),
    };
    if ctx % 2 == 1 { format!("part of a collective on {name}") } else { name }
}

/// The envelopes differ.
pub fn header(place: &MessagePlace, recorded: &Envelope, repeated: &Envelope) -> String {
    let fields = [
        ("length", recorded.len as i64, repeated.len as i64),
        ("tag", i64::from(recorded.tag), i64::from(repeated.tag)),
        ("context of the communicator", recorded.ctx.into(), repeated.ctx.into()),
        ("rank in the communicator", recorded.crank.into(), repeated.crank.into()),
        ("kind of send", kind(recorded), kind(repeated)),
    ];
    let differ = fields.iter().filter(|(_, a, b)| a != b);
    let text: Vec<String> =
        differ.map(|(what, a, b)| format!("{what}: recorded {a}, repeated {b}")).collect();
    let place = MessagePlace { env: *recorded, ..*place };
    format!("{place} differs in its {}", text.join("; "))
}

/// Without what follows from the length, and from where the message lies.
fn kind(env: &Envelope) -> i64 {
    i64::from(env.flags & !(FIRST | LAST))
}

/// The payloads differ; these are the bytes from `offset` on. `None`: they are equal.
pub fn payload(
    place: &MessagePlace,
    offset: u64,
    recorded: &[u8],
    repeated: &[u8],
) -> Option<String> {
    let at = recorded.iter().zip(repeated).position(|(a, b)| a != b)?;
    let shown = |all: &[u8]| {
        let from = at.saturating_sub(SHOWN_BYTES / 2);
        let bytes = all[from..all.len().min(from + SHOWN_BYTES)].iter();
        bytes.map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
    };
    let first = offset + at as u64;
    let from = offset + at.saturating_sub(SHOWN_BYTES / 2) as u64;
    let guess = guess(offset, at, recorded, repeated);
    Some(format!(
        "{place} differs first in byte {first}: recorded {:02x}, repeated {:02x} (from byte {from} \
         on: {} and {}); {guess}",
        recorded[at],
        repeated[at],
        shown(recorded),
        shown(repeated),
    ))
}

/// The aligned word of `size` bytes around the first difference, of both.
fn words<const N: usize>(offset: u64, at: usize, a: &[u8], b: &[u8]) -> Option<[[u8; N]; 2]> {
    let misplaced = (offset as usize + at) % N;
    let from = at.checked_sub(misplaced)?;
    let word = |all: &[u8]| all.get(from..)?.first_chunk::<N>().copied();
    Some([word(a)?, word(b)?])
}

/// What the values look like.
fn guess(offset: u64, at: usize, a: &[u8], b: &[u8]) -> &'static str {
    let wide = words::<8>(offset, at, a, b);
    let narrow = words::<4>(offset, at, a, b);
    let both = |f: &dyn Fn([u8; 8]) -> bool| wide.is_some_and(|w| w.iter().all(|w| f(*w)));
    let integer = |w: [u8; 8]| u64::from_le_bytes(w);
    let is_time = |w: [u8; 8]| {
        let n = integer(w) as f64;
        let scaled = [1.0, 1e3, 1e6, 1e9].iter().any(|unit| EPOCH_S.contains(&(n / unit)));
        scaled || EPOCH_S.contains(&f64::from_le_bytes(w))
    };
    if both(&is_time) || narrow.is_some_and(is_short_time) {
        return "it looks like a time of day";
    }
    if both(&|w| ADDRESSES.contains(&integer(w))) {
        return "it looks like an address, which is another one in each process";
    }
    // Round numbers end in zeros, too.
    let is_number = |w: [u8; 8]| {
        let n = f64::from_le_bytes(w);
        n.is_normal() && (1e-12..1e15).contains(&n.abs())
    };
    if !both(&is_number) && is_gap(wide, narrow) {
        return "it looks like bytes that were never set, a gap between members of a struct say";
    }
    let numbers = wide.map(|w| w.map(f64::from_le_bytes));
    match numbers.filter(|n| n.iter().all(|n| n.is_normal() && (1e-12..1e15).contains(&n.abs()))) {
        Some([x, y]) if (x - y).abs() <= ROUNDING * x.abs().max(y.abs()) => {
            "it looks like a floating-point result that was rounded otherwise: another order of \
             operations, other instructions, or data that had not come"
        }
        Some([x, y]) if x > 0.0 && y > 0.0 && (x - y).abs() < APART_S => {
            "it looks like a floating-point number: a measured time, or a result of such"
        }
        Some(_) => "it looks like a floating-point number",
        None if narrow.is_some_and(is_small) => {
            "it looks like a small integer: a number of a process or thread, a count, a random \
             number"
        }
        None => "what it is cannot be guessed",
    }
}

fn is_short_time(words: [[u8; 4]; 2]) -> bool {
    words.iter().all(|w| EPOCH_S.contains(&f64::from(u32::from_le_bytes(*w))))
        && u32::from_le_bytes(words[0]).abs_diff(u32::from_le_bytes(words[1])) < APART_S as u32
}

fn is_small(words: [[u8; 4]; 2]) -> bool {
    words.iter().all(|w| u32::from_le_bytes(*w) < 1 << 22)
}

/// Whether a word begins with a small value that is equal, and ends in bytes that mean nothing:
/// what follows a char or an int in a struct.
fn is_gap(wide: Option<[[u8; 8]; 2]>, narrow: Option<[[u8; 4]; 2]>) -> bool {
    let after_int = wide.is_some_and(|[a, b]| {
        let (low, high) = (a[..4] == b[..4], a[4..] != b[4..]);
        let value = u32::from_le_bytes([a[0], a[1], a[2], a[3]]);
        low && high && value < 1 << 24
    });
    let after_char = narrow.is_some_and(|[a, b]| {
        let ends = a[1..] != b[1..] && a[0] == b[0];
        let zero = |w: [u8; 4]| w[1..] == [0; 3];
        ends && (zero(a) != zero(b))
    });
    after_int || after_char
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(a: &[u8], b: &[u8]) -> String {
        let env = Envelope { len: a.len() as u64, ctx: 0, tag: 5, crank: 1, flags: 0 };
        let place = MessagePlace { src: 1, dst: 0, number: 35, call: "PMPI_Isend", env };
        payload(&place, 0, a, b).unwrap()
    }

    fn with<const N: usize>(values: [[u8; N]; 2]) -> String {
        let text = [[0; N], values[0]].concat();
        told(&text, &[[0; N], values[1]].concat())
    }

    #[test]
    fn the_place_and_both_values_are_named() {
        let text = told(&[1, 2, 3, 4], &[1, 2, 9, 4]);
        let what = "channel 1 -> 0, message 35 (MPI_Isend, 4 bytes, tag 5, MPI_COMM_WORLD) \
                    differs first in byte 2: recorded 03, repeated 09 (from byte 0 on: 01 02 03 04 \
                    and 01 02 09 04)";
        assert!(text.starts_with(what), "{text}");
    }

    #[test]
    fn lengths_and_tags_are_named() {
        let env = Envelope { len: 8, ctx: 17, tag: 5, crank: 1, flags: 0 };
        let place = MessagePlace { src: 1, dst: 0, number: 2, call: "", env };
        let other = Envelope { len: 9, tag: 6, ..env };
        let text = header(&place, &env, &other);
        let subject = "channel 1 -> 0, message 2 (8 bytes, tag 5, part of a collective on a \
                       communicator with context 16)";
        assert_eq!(
            text,
            format!(
                "{subject} differs in its length: recorded 8, repeated 9; tag: recorded 5, \
                 repeated 6"
            )
        );
    }

    #[test]
    fn what_the_values_look_like() {
        let ns = |n: u64| n.to_le_bytes();
        for (values, want) in [
            ([ns(1_790_000_000_000_000_123), ns(1_790_000_000_700_000_456)], "time of day"),
            ([1_790_000_000.25f64.to_le_bytes(), 1_790_000_001.5f64.to_le_bytes()], "time of day"),
            ([ns(0x7ffc_1234_5678), ns(0x7ffd_4321_5678)], "address"),
            ([ns(3), ns(3 | 0x5555_0000_0000)], "never set"),
            ([1.0f64.to_le_bytes(), (1.0f64 + 1e-12).to_le_bytes()], "rounded otherwise"),
            ([0.125f64.to_le_bytes(), 0.75f64.to_le_bytes()], "measured time"),
            ([ns(4711), ns(4712)], "small integer"),
            ([ns(u64::MAX), ns(u64::MAX / 3)], "cannot be guessed"),
        ] {
            assert!(with(values).contains(want), "{want}: {}", with(values));
        }
        assert!(with([[b'x', 0, 0, 0], [b'x', 9, 7, 0]]).contains("never set"));
        assert!(with([1_790_000_000u32, 1_790_000_009].map(u32::to_le_bytes)).contains("time of"));
    }
}
