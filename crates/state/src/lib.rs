//! What lies on disk of jobs: `$EYRIE_HOME` with a folder for each job, fast local storage, the
//! history of jobs that have ended, the registry of those that run, and what a saved job consists
//! of. Bytes in `docs/formats/state.md`.
//!
//! Kept true: a folder that is in use is locked, and one whose lock is free is a dead job's; what
//! another user could have put there is neither trusted nor followed.

#![allow(unsafe_code)] // system calls that only libc has

pub mod at_rest;
pub mod folder_lock;
pub mod history;
pub mod home;
pub mod image_names;
pub mod local;
pub mod nodes_lock;
pub mod printed_counts;
pub mod random;
pub mod registry;
pub mod samples;
pub mod saved_job;
pub mod sealing;
pub mod shortage;
pub mod stdin_file;
pub mod units;
pub mod wall_clock;
