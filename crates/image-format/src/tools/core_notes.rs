//! The notes of an ELF core file: threads, the process, its files.
//!
//! Structures are those of the kernel for x86-64, as `<sys/procfs.h>` has them.

use crate::PAGE_BYTES;
use crate::read::image::Image;
use crate::state::{Backing, Thread};

const NT_PRSTATUS: u32 = 1;
const NT_FPREGSET: u32 = 2;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_X86_XSTATE: u32 = 0x202;
const NT_SIGINFO: u32 = 0x5349_4749;
const NT_FILE: u32 = 0x4649_4c45;

const PRSTATUS_BYTES: usize = 336;
const PRPSINFO_BYTES: usize = 136;
const SIGINFO_BYTES: usize = 128;
/// The part of the XSAVE area that all x86-64 processors have.
const FPREGS_BYTES: usize = 512;
/// Most bytes of the command line.
const PSARGS_BYTES: usize = 80;

/// A structure that is filled in by offset.
struct Record(Vec<u8>);

impl Record {
    fn new(bytes: usize) -> Record {
        Record(vec![0; bytes])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// All notes, in the order in which the kernel writes them.
pub fn notes(image: &Image) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, thread) in image.state.threads.iter().enumerate() {
        note(&mut out, "CORE", NT_PRSTATUS, &prstatus(image, thread));
        if i == 0 {
            note(&mut out, "CORE", NT_PRPSINFO, &prpsinfo(image));
            note(&mut out, "CORE", NT_SIGINFO, &[0; SIGINFO_BYTES]);
            note(&mut out, "CORE", NT_AUXV, &image.state.layout.auxv);
            note(&mut out, "CORE", NT_FILE, &files(image));
        }
        note(&mut out, "CORE", NT_FPREGSET, &thread.xstate[..FPREGS_BYTES]);
        note(&mut out, "LINUX", NT_X86_XSTATE, &thread.xstate);
    }
    out
}

fn note(out: &mut Vec<u8>, name: &str, kind: u32, content: &[u8]) {
    for word in [name.len() as u32 + 1, content.len() as u32, kind] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(content);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

fn prstatus(image: &Image, thread: &Thread) -> Vec<u8> {
    let mut record = Record::new(PRSTATUS_BYTES);
    let pending = thread.pending.iter().fold(0u64, |set, p| set | 1 << ((p.signal() - 1) & 63));
    record.put(16, &pending.to_le_bytes());
    record.put(24, &thread.sigmask.to_le_bytes());
    // Its own number; the number of the process stands for parent, group and session.
    record.put(32, &thread.tid.to_le_bytes());
    for at in [36, 40, 44] {
        record.put(at, &image.state.pid.to_le_bytes());
    }
    for (i, word) in thread.regs.iter().enumerate() {
        record.put(112 + i * 8, &word.to_le_bytes());
    }
    // The floating point registers are there too.
    record.put(328, &1u32.to_le_bytes());
    record.0
}

fn prpsinfo(image: &Image) -> Vec<u8> {
    let state = &image.state;
    let mut record = Record::new(PRPSINFO_BYTES);
    record.put(0, &[1, b'S']);
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    record.put(16, &uid.to_le_bytes());
    record.put(20, &gid.to_le_bytes());
    for at in [24, 28, 32, 36] {
        record.put(at, &state.pid.to_le_bytes());
    }
    let comm = &state.leader().comm;
    record.put(40, &comm[..comm.len().min(15)]);
    let layout = &state.layout;
    let words = image.strings(layout.arg_start, layout.arg_end, PSARGS_BYTES);
    let line = if words.is_empty() { state.exe.clone() } else { words.join(&b' ') };
    record.put(56, &line[..line.len().min(PSARGS_BYTES - 1)]);
    record.0
}

/// Which addresses are of which files.
fn files(image: &Image) -> Vec<u8> {
    let mut entries: Vec<[u64; 3]> = Vec::new();
    let mut names = Vec::new();
    for r in &image.state.regions {
        if let Backing::File { file, offset } = &r.backing {
            entries.push([r.start, r.end, offset / PAGE_BYTES]);
            names.extend_from_slice(&image.state.files[*file as usize].path);
            names.push(0);
        }
    }
    let mut out = Vec::new();
    let head = [entries.len() as u64, PAGE_BYTES];
    for word in head.iter().chain(entries.iter().flatten()) {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&names);
    out
}
