//! The program of a job: whether it is there, can run, and what of Eyrie it needs.

use crate::front::parts;
use crate::messages;
use anyhow::Context;
use eyrie_process::program::{self, ProgramError};
use eyrie_process::spawn::Prefix;
use eyrie_terminal::{FAILED, Failure};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

pub fn checked_program(command: &[OsString]) -> Result<PathBuf, Failure> {
    let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    for part in parts::parts_of(command).into_iter().flatten() {
        if let Some(folder) = part.folder.as_ref().filter(|folder| !Path::new(folder).is_dir()) {
            let error = anyhow::anyhow!("-wdir {}: there is no such folder", folder.display());
            return Err(Failure::new(FAILED, error));
        }
        checked_program(&[part.program()])?;
    }
    let fail = |e: program::ProgramError| Failure::new(e.exit_code(), e);
    let path = program::find(name).map_err(fail)?;
    program::check_mpi(&path).map_err(fail)?;
    warn_of_extensions(&path);
    Ok(path)
}

/// What a program needs of another MPI the loader does not find, and says so in its own way.
fn warn_of_extensions(program: &Path) {
    let lib = std::env::current_exe().ok().and_then(|binary| Prefix::of(&binary).lib);
    let mut missing = program::missing_extensions(program, lib.as_deref());
    if missing.is_empty() {
        return;
    }
    let count = missing.len();
    missing.truncate(4);
    let more = if count > missing.len() { ", ..." } else { "" };
    messages::say(&format!(
        "'{}' needs {}{more}: extensions of another MPI, which Eyrie has not: build it with \
         eyrie's mpicc, without them (most programs ask for them in their configuration)",
        program.display(),
        missing.join(", ")
    ));
}

/// The same for a program that hosts run: what is not on this machine may be there.
pub fn program_elsewhere(command: &[OsString]) -> Result<PathBuf, Failure> {
    let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    if let Some(parts) = parts::parts_of(command) {
        parts.iter().try_for_each(|p| program_elsewhere(&[p.program()]).map(drop))?;
        return Ok(PathBuf::from(name));
    }
    match program::find(name) {
        Err(ProgramError::NotFound(_)) => Ok(PathBuf::from(name)),
        _ => checked_program(command),
    }
}

/// Where `eyrie` itself is; with all that a job needs which is protected.
pub fn own_binary(protected: bool) -> Result<PathBuf, Failure> {
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    if protected && Prefix::of(&binary).restorer.is_none() {
        return Err(Failure::new(
            FAILED,
            anyhow::anyhow!(
                "the program eyrie-restorer is missing beside {} and in ../libexec: install it, \
                 or run with --ft none",
                binary.display()
            ),
        ));
    }
    Ok(binary)
}
