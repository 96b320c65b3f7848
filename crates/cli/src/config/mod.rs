//! Configuration files: defaults of all options, for a site, for a user, or for one command.
//!
//! `/etc/eyrie/config.toml`, `~/.config/eyrie/config.toml` or `$EYRIE_CONFIG` have a table for each
//! command, whose keys are its long options, and one of durations. What is typed goes before an
//! option's variable, that before the user's file, that before the site's.
//!
//! Kept true: a value of a file is checked by the parser as if it were typed; one that does not go
//! with what was typed loses without a word; two of one file that do not go together are an error.

pub mod defaults;
pub mod files;
pub mod folders;
pub mod options;
pub mod read;
pub mod timing;
