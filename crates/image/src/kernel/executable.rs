//! Whether the kernel of this machine runs a file as a program (execve(2), binfmt_elf.c).
//!
//! Kept true: what the kernel would answer with `ENOEXEC` is refused here by name. The C library
//! gives such a file to `/bin/sh`, which would run machine code as a script. Only text goes there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a file that are looked at: the head of an ELF file, or the beginning of a text.
const HEAD_BYTES: usize = 256;
/// Size of the head of a 64-bit ELF file, and of each of its program headers.
const ELF_HEAD_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;

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
    let mut head = [0; HEAD_BYTES];
    let read = File::open(path).and_then(|file| read_up_to(&file, &mut head));
    let Ok(len) = read else { return Ok(()) };
    let refused = |why| NotExecutable { path: path.display().to_string(), why };
    check_head(head.get(..len).unwrap_or_default()).map_err(refused)
}

fn read_up_to(file: &File, head: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < head.len() {
        match file.read_at(&mut head[len..], len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
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
    fn what_the_kernel_does_not_run_is_no_script() {
        assert!(check_head(&own_head()[..40]).unwrap_err().contains("damaged"));
        assert!(changed(16, &1u16.to_le_bytes()).unwrap_err().contains("object file"));
        assert!(changed(54, &55u16.to_le_bytes()).unwrap_err().contains("damaged"));
        assert!(changed(56, &0u16.to_le_bytes()).unwrap_err().contains("damaged"));
        assert!(check_head(b"\xca\xfe\xba\xbe\0\0\0\x34").unwrap_err().contains("neither"));
    }
}
