//! The names of files that an image of a rank consists of: `rank-R.gen-G`, those of its child
//! processes (the same with `.1`, `.2` ... for each generation of them), and over nodes the log
//! beside it.
//!
//! Kept true: nothing is taken for a file of an image but names that are made by
//! `eyrie_exchange::image_files`.

use std::ffi::OsStr;

/// Longest name: what is being written has a little more in its name than it will have.
pub const MAX_NAME_BYTES: usize = 200;
/// Most children of a process, and most processes of a rank.
pub const MAX_PROCESSES: usize = 256;

/// What a file is of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The image of the process that Eyrie started.
    Own,
    /// That of a descendant.
    Child,
    Log,
}

/// A file of an image, as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    pub rank: u32,
    pub generation: u32,
    pub part: Part,
}

/// A number as it is written here, in the one way that there is.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let plain = digits && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

/// What `name` names; `None`: no file of an image.
pub fn parse(name: &str) -> Option<Named> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let (rank, rest) = name.strip_prefix("rank-")?.split_once(".gen-")?;
    let (generation, rest) = rest.split_once('.').map_or((rest, None), |(g, r)| (g, Some(r)));
    let child = |n: &str| number(n).is_some_and(|n| (1..=MAX_PROCESSES as u32).contains(&n));
    let part = match rest {
        None => Part::Own,
        Some("log") => Part::Log,
        Some(rest) if rest.split('.').all(child) => Part::Child,
        Some(_) => return None,
    };
    Some(Named { rank: number(rank)?, generation: number(generation)?, part })
}

/// Whether it names one.
pub fn is_name(name: &str) -> bool {
    parse(name).is_some()
}

/// What a file's name as the system has it names.
pub fn parse_os(name: &OsStr) -> Option<Named> {
    parse(name.to_str()?)
}
