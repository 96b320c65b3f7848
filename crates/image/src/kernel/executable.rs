//! Whether the kernel of this machine runs a file as a program (execve(2), binfmt_elf.c).
//!
//! Kept true: what the kernel would answer with `ENOEXEC` is refused here by name. The C library
//! gives such a file to `/bin/sh`, which would run machine code as a script. Only text goes there.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that are looked at: the head of an ELF file, or the beginning of a text.
const HEAD_BYTES: usize = 256;
/// Size of the head of a 64-bit ELF file, and of each of its program headers.
const ELF_HEAD_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;
/// What a program header says: a part of the file that is mapped, and where the name of the loader
/// is.
const PART_MAPPED: u32 = 1;
const PART_LOADER: u32 = 3;
/// Beyond the end of a file the rest of its last page reads as zeros.
const PAGE_BYTES: u64 = 4096;
/// Longest name of a loader that is looked at, as Linux has it.
const MAX_NAME_BYTES: u64 = 4096;

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const TYPE_EXECUTABLE: u16 = 2;
const TYPE_SHARED: u16 = 3;
const X86_64: u16 = 62;

/// Why a file is no program for this machine.
#[derive(Debug, thiserror::Error)]
#[error("'{path}' {why}")]
pub struct NotExecutable {
    path: String,
    why: String,
}

impl From<NotExecutable> for io::Error {
    fn from(error: NotExecutable) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Looks at a program's first bytes. A file that cannot be read is left to the kernel, which may
/// run what it does not let be read.
pub fn check_executable(path: &Path) -> Result<(), NotExecutable> {
    let Ok((file, head)) = opened(path) else { return Ok(()) };
    let refused = |why| NotExecutable { path: path.display().to_string(), why };
    check_head(&head).map_err(refused)?;
    if let Ok(len) = file.metadata().map(|meta| meta.len())
        && let Some(needs) = mapped_bytes(&file, &head)
        && needs > len.next_multiple_of(PAGE_BYTES)
    {
        let why = format!("is damaged: it has {len} bytes and should have {needs}");
        return Err(refused(why));
    }
    Ok(())
}

/// Why a program could not be executed that is there itself: the kernel gives the error of what it
/// is run by (`#!`, or the loader that it is linked for) as the program's own.
pub fn name_interpreter(path: &Path, error: io::Error) -> io::Error {
    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) {
        return error;
    }
    let Ok((file, head)) = opened(path) else { return error };
    let Some(interpreter) = interpreter(&file, &head) else { return error };
    let shown = interpreter.display();
    let by = if head.starts_with(b"#!") { "its first line names" } else { "it is linked for" };
    let why = match std::fs::metadata(&interpreter) {
        Err(e) if interpreter.as_os_str().as_bytes().ends_with(b"\r") && not_there(&e) => {
            String::from(
                "cannot be run: its first line ends with a carriage return, as on Windows: \
                 remove them (sed -i 's/\\r$//' FILE)",
            )
        }
        Err(e) => format!("cannot be run: {by} '{shown}': {e}"),
        Ok(meta) if meta.is_dir() || meta.permissions().mode() & 0o111 == 0 => {
            format!("cannot be run: {by} '{shown}', which is not executable")
        }
        Ok(_) => return error,
    };
    NotExecutable { path: path.display().to_string(), why }.into()
}

fn not_there(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn opened(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let file = File::open(path)?;
    let head = read_up_to(&file, 0, HEAD_BYTES)?;
    Ok((file, head))
}

fn read_up_to(file: &File, at: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut len = 0;
    while len < most {
        match file.read_at(&mut bytes[len..], at.saturating_add(len as u64)) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Kind, place and length of each part that the program headers of a checked head name.
fn parts(file: &File, head: &[u8]) -> Option<Vec<(u32, u64, u64)>> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let headers = usize::from(u16::from_le_bytes([*head.get(56)?, *head.get(57)?]));
    let bytes = headers * usize::from(PROGRAM_HEADER_BYTES);
    let table = read_up_to(file, word(head, 32)?, bytes).ok()?;
    let part = |header: &[u8]| {
        let kind = u32::from_le_bytes(header.get(..4)?.try_into().ok()?);
        Some((kind, word(header, 8)?, word(header, 32)?))
    };
    table.chunks_exact(usize::from(PROGRAM_HEADER_BYTES)).map(part).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// How much of the file is mapped.
fn mapped_bytes(file: &File, head: &[u8]) -> Option<u64> {
    let ends =
        parts(file, head)?.into_iter().filter(|(kind, _, len)| *kind == PART_MAPPED && *len > 0);
    ends.map(|(_, at, len)| at.saturating_add(len)).max()
}

/// What the kernel runs a program by.
fn interpreter(file: &File, head: &[u8]) -> Option<PathBuf> {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii_start();
        let name = line.split(|&byte| byte == b' ' || byte == b'\t').next()?;
        return (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)));
    }
    let (_, at, len) = parts(file, head)?.into_iter().find(|(kind, ..)| *kind == PART_LOADER)?;
    let name = read_up_to(file, at, len.min(MAX_NAME_BYTES) as usize).ok()?;
    let name = name.split(|&byte| byte == 0).next()?;
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
}

fn check_head(head: &[u8]) -> Result<(), String> {
    if head.starts_with(b"\x7fELF") {
        return check_elf(head);
    }
    // As shells tell machine code from a script: by a zero byte in the first line.
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if head.starts_with(b"#!") || !line.contains(&0) {
        return Ok(());
    }
    Err(String::from("is neither a program for this machine (x86-64) nor a script"))
}

fn check_elf(head: &[u8]) -> Result<(), String> {
    let damaged = || String::from("is damaged: its ELF head is not whole");
    if head.len() < ELF_HEAD_BYTES {
        return Err(damaged());
    }
    let [class, order] = [head[4], head[5]];
    let half = |at: usize| {
        let bytes = [head[at], head[at + 1]];
        if order == LITTLE_ENDIAN { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    };
    let (kind, machine) = (half(16), half(18));
    if machine != X86_64 || class != CLASS_64 || order != LITTLE_ENDIAN {
        let of = machine_name(machine, class);
        return Err(format!(
            "is a program for {of}, and this machine is x86-64: compile it for this one"
        ));
    }
    if kind != TYPE_EXECUTABLE && kind != TYPE_SHARED {
        return Err(String::from(
            "is no program, but an object file or a core dump: link it, or give the program",
        ));
    }
    let (header_bytes, headers) = (half(54), half(56));
    if header_bytes != PROGRAM_HEADER_BYTES || headers == 0 {
        return Err(damaged());
    }
    Ok(())
}

/// The processor a program is for, by ELF's numbers.
fn machine_name(machine: u16, class: u8) -> String {
    let name = match (machine, class) {
        (2 | 18, _) | (43, 1) => "SPARC",
        (3 | 6, _) => "32-bit x86",
        (8, _) => "MIPS",
        (20, _) => "32-bit POWER",
        (21, _) => "64-bit POWER",
        (22, _) => "IBM Z",
        (40, _) => "32-bit ARM",
        (43, _) => "64-bit SPARC",
        (50, _) => "Itanium",
        (X86_64, 1) => "x32 (x86-64 with 32-bit addresses)",
        (183, _) => "64-bit ARM (aarch64)",
        (243, _) => "RISC-V",
        (258, _) => "LoongArch",
        (number, _) => return format!("another processor (ELF machine {number})"),
    };
    String::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_head() -> Vec<u8> {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        bytes.truncate(HEAD_BYTES);
        bytes
    }

    fn changed(at: usize, to: &[u8]) -> Result<(), String> {
        let mut head = own_head();
        head[at..at + to.len()].copy_from_slice(to);
        check_head(&head)
    }

    #[test]
    fn programs_of_this_machine_and_scripts_are_taken() {
        assert_eq!(check_head(&own_head()), Ok(()));
        for text in [&b"#!/bin/sh\n"[..], b"echo 1\n", b"", b"#!/usr/bin/env x\n\0\0", b"a\nb\0"] {
            assert_eq!(check_head(text), Ok(()));
        }
    }

    #[test]
    fn other_machines_are_named() {
        for (machine, word) in [(183u16, "aarch64"), (243, "RISC-V"), (21, "64-bit POWER")] {
            let why = changed(18, &machine.to_le_bytes()).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        assert!(changed(18, &3u16.to_le_bytes()).unwrap_err().contains("32-bit x86"));
        assert!(changed(18, &9999u16.to_le_bytes()).unwrap_err().contains("ELF machine 9999"));
        let big_endian = [b"\x7fELF\x02\x02".to_vec(), vec![0; 12], vec![0, 22], vec![0; 50]];
        assert!(check_head(&big_endian.concat()).unwrap_err().contains("IBM Z"));
    }

    #[test]
    fn a_program_that_was_cut_off_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut");
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert!(check_executable(&path).is_ok());
        std::fs::write(&path, &bytes[..bytes.len() / 4]).unwrap();
        let why = check_executable(&path).unwrap_err().to_string();
        assert!(why.contains("damaged") && why.contains(&(bytes.len() / 4).to_string()), "{why}");
    }

    #[test]
    fn what_a_program_is_run_by_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let told = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let missing = io::Error::from_raw_os_error(libc::ENOENT);
            name_interpreter(&path, missing).to_string()
        };
        let script = told(b"#! /nonexistent/interpreter -x\necho\n");
        assert!(script.contains("names '/nonexistent/interpreter': No such file"), "{script}");
        assert!(told(b"#!/bin/sh\r\necho\n").contains("carriage return"));
        assert!(told(b"#!/etc/passwd\n").contains("'/etc/passwd', which is not executable"));
        for fine in [&b"#!/bin/sh\necho\n"[..], b"echo\n", b"#!\n", b""] {
            assert!(told(fine).starts_with("No such file"), "nothing is guessed");
        }
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        let name = b"/lib64/ld-linux";
        let at = bytes.windows(name.len()).position(|part| part == name).unwrap();
        bytes[at + 1] = b'L';
        let program = told(&bytes);
        assert!(program.contains("linked for '/Lib64/ld-linux"), "{program}");
    }

    #[test]
    fn what_the_kernel_does_not_run_is_no_script() {
        assert!(check_head(&own_head()[..40]).unwrap_err().contains("damaged"));
        assert!(changed(16, &1u16.to_le_bytes()).unwrap_err().contains("object file"));
        assert!(changed(54, &55u16.to_le_bytes()).unwrap_err().contains("damaged"));
        assert!(changed(56, &0u16.to_le_bytes()).unwrap_err().contains("damaged"));
        assert!(check_head(b"\xca\xfe\xba\xbe\0\0\0\x34").unwrap_err().contains("neither"));
    }
}
