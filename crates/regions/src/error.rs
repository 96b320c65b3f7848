//! What can go wrong, told so that whoever reads it knows what to do.

use crate::format::PartError;
use crate::part::ReadError;
use eyrie_objects::StoreError;
use eyrie_vault::VaultError;
use std::io;
use std::path::{Path, PathBuf};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum RegionsError {
    #[error("option '{option}': {why}")]
    Option { option: String, why: String },
    #[error("cannot {what} {}: {error}", path.display())]
    File { what: &'static str, path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Part { path: PathBuf, error: PartError },
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: ReadError },
    #[error("region {id}: {why}")]
    Region { id: i32, why: String },
    #[error("{0}")]
    Use(String),
    #[error("the processes cannot agree: the function that they were given returned {0}")]
    Peers(i32),
    #[error("process {0} could not; it says why")]
    Other(i64),
    #[error(
        "there is no checkpoint {0} that all processes can have; lines before this one may say why"
    )]
    None(String),
    #[error("{place}: {error}")]
    Store { place: String, error: StoreError },
    #[error("the vault: {0}")]
    Vault(#[from] VaultError),
    #[error("{label} is stored, but on its nodes only: {error}")]
    Unprotected { label: String, error: Box<RegionsError> },
}

/// An error of a file.
pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RegionsError {
    move |error| RegionsError::File { what, path: path.into(), error }
}

pub fn part(path: &Path) -> impl FnOnce(PartError) -> RegionsError {
    move |error| RegionsError::Part { path: path.into(), error }
}

/// A line on standard error: what a user should know although all goes on.
pub fn note(rank: u32, text: &str) {
    eprintln!("eyrie-regions: process {rank}: {text}");
}
