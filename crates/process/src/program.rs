//! The program to run: found, executable, and not bound to an MPI library that is not ours.

use object::Endianness;
use object::elf;
use object::read::elf::{Dyn, FileHeader, Sym as _};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most bytes of a program that are looked at for its needed libraries.
const MAX_LOOK_BYTES: u64 = 4 << 30;

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("program '{0}' not found: give its path, or check PATH")]
    NotFound(String),
    #[error("'{0}' is not executable: check its permissions (chmod +x)")]
    NotExecutable(String),
    #[error("'{0}' is a folder, not a program")]
    Folder(String),
    #[error("{0}")]
    NotForHere(#[from] eyrie_image::NotExecutable),
    #[error(
        "'{program}' is linked to {library}, a library of {of} which Eyrie does not stand in for: \
         build it with eyrie's mpicc, mpicxx or mpifort"
    )]
    ForeignMpi { program: String, library: String, of: &'static str },
    #[error("'{0}': {1}")]
    Io(String, io::Error),
}

impl ProgramError {
    /// Exit code in the habit of shells: 127 not found, 126 found but unusable.
    pub fn exit_code(&self) -> i32 {
        if matches!(self, ProgramError::NotFound(_)) { 127 } else { 126 }
    }
}

/// Where `name` is, as a shell would find it.
pub fn find(name: &OsStr) -> Result<PathBuf, ProgramError> {
    let shown = name.to_string_lossy().into_owned();
    // Looked for in PATH it would be the first folder there.
    if name.is_empty() {
        return Err(ProgramError::NotFound(shown));
    }
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name)).map(|()| PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut unusable = None;
    for dir in std::env::split_paths(&path) {
        let full = dir.join(name);
        match check(&full) {
            Ok(()) => return Ok(full),
            Err(ProgramError::NotFound(_)) => {}
            Err(error) => unusable = unusable.or(Some(error)),
        }
    }
    Err(unusable.unwrap_or(ProgramError::NotFound(shown)))
}

fn check(path: &Path) -> Result<(), ProgramError> {
    let shown = path.display().to_string();
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ProgramError::NotFound(shown.clone())
        }
        _ => ProgramError::Io(shown.clone(), e),
    })?;
    if meta.is_dir() {
        return Err(ProgramError::Folder(shown));
    }
    let may = rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if !may || meta.mode() & 0o111 == 0 {
        return Err(ProgramError::NotExecutable(shown));
    }
    Ok(eyrie_image::check_executable(path)?)
}

/// Refuses programs linked to an MPI library whose names we do not serve. What is no ELF file
/// (a script) is not looked into.
pub fn check_mpi(path: &Path) -> Result<(), ProgramError> {
    let shown = path.display().to_string();
    let Ok(file) = std::fs::File::open(path) else { return Ok(()) };
    let cache = object::ReadCache::new(file);
    let needed = needed_libraries(&cache).unwrap_or_default();
    for library in needed {
        if eyrie_libraries::is_other_of_open_mpi(&library) {
            let of = "Open MPI";
            return Err(ProgramError::ForeignMpi { program: shown, library, of });
        }
    }
    Ok(())
}

/// Functions `MPIX_*` that a program needs and Eyrie's library (in `lib`) has not. Of what other
/// libraries have nothing is known.
pub fn missing_extensions(path: &Path, lib: Option<&Path>) -> Vec<String> {
    let symbols = |path: &Path, defined: bool| -> Vec<String> {
        let file = std::fs::File::open(path).ok();
        let found = file.and_then(|file| extensions(&object::ReadCache::new(file), defined));
        found.unwrap_or_default()
    };
    let needed = symbols(path, false);
    if needed.is_empty() {
        return needed;
    }
    let have = lib.map_or_else(Vec::new, |lib| symbols(&lib.join("libmpi.so.12"), true));
    needed.into_iter().filter(|name| !have.contains(name)).collect()
}

/// Dynamic symbols that begin with MPIX or PMPIX, and are defined, or needed.
fn extensions<'a>(data: impl object::ReadRef<'a>, defined: bool) -> Option<Vec<String>> {
    symbols(data, |name| name.starts_with(b"MPIX_") || name.starts_with(b"PMPIX_"), defined)
}

/// Dynamic symbols that are wanted, and are defined, or needed.
fn symbols<'a>(
    data: impl object::ReadRef<'a>,
    wanted: impl Fn(&[u8]) -> bool,
    defined: bool,
) -> Option<Vec<String>> {
    if data.len().ok()? > MAX_LOOK_BYTES {
        return None;
    }
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let symbols = header.sections(endian, data).ok()?;
    let symbols = symbols.symbols(endian, data, elf::SHT_DYNSYM).ok()?;
    let mut names = Vec::new();
    for symbol in symbols.iter() {
        let name = symbols.symbol_name(endian, symbol).ok()?;
        let weak = symbol.st_bind() == elf::STB_WEAK;
        if wanted(name) && symbol.is_undefined(endian) != defined && (defined || !weak) {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Some(names)
}

/// Whether a program needs a function whose name, in small letters, has one of these in it.
pub fn needs(path: &Path, parts: &[&str]) -> bool {
    let names = std::fs::File::open(path).ok().and_then(|file| {
        let wanted = |name: &[u8]| {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            parts.iter().any(|part| name.contains(part))
        };
        symbols(&object::ReadCache::new(file), wanted, false)
    });
    names.is_some_and(|names| !names.is_empty())
}

/// DT_NEEDED of a 64-bit little-endian ELF file. Anything odd gives `None`.
fn needed_libraries<'a>(data: impl object::ReadRef<'a>) -> Option<Vec<String>> {
    if data.len().ok()? > MAX_LOOK_BYTES {
        return None;
    }
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let mut names = Vec::new();
    if let Some((entries, link)) = sections.dynamic(endian, data).ok()? {
        let strings = sections.strings(endian, data, link).ok()?;
        for entry in entries {
            if entry.tag32(endian) == Some(elf::DT_NEEDED) {
                let name = strings.get(entry.val32(endian)?).ok()?;
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_the_reason_is_named() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        let missing = find(OsStr::new("no-such-program-here")).unwrap_err();
        assert_eq!(missing.exit_code(), 127);
        assert_eq!(find(OsStr::new("/etc/passwd")).unwrap_err().exit_code(), 126);
        assert!(matches!(find(OsStr::new("/tmp")), Err(ProgramError::Folder(_))));
    }

    #[test]
    fn needed_libraries_are_read() {
        let own = std::env::current_exe().unwrap();
        let data = std::fs::read(own).unwrap();
        let needed = needed_libraries(&*data).unwrap();
        assert!(needed.iter().any(|n| n.starts_with("libc.so")), "{needed:?}");
        assert!(needed_libraries(&b"#!/bin/sh\n"[..]).is_none());
    }
}
