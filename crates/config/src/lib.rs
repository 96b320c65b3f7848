//! Configuration files of both commands: which files there are, how one is read, and how what it
//! says is mixed with what was typed.
//!
//! `/etc/eyrie/config.toml`, `~/.config/eyrie/config.toml` or `$EYRIE_CONFIG` have a table for each
//! command, whose keys are its long options. Which tables and keys hold for which command is left
//! to who has that command.
//!
//! Kept true: a value of a file is checked by the parser as if it were typed; a file that another
//! user could have written is not read.
#![forbid(unsafe_code)]

pub mod file;
pub mod grid;
pub mod help;
pub mod keys;
pub mod places;
pub mod typed;

/// Keys that stand in no table.
pub const FOLDERS: [&str; 2] = ["home", "local"];
/// The table around those of `eyrie-image`.
pub const IMAGE: &str = "eyrie-image";
