//! What an image holds, told in plain words and numbers for those who look at it.

use crate::PAGE_BYTES;
use crate::bytes::registers::words_to_regs;
use crate::read::image::Image;
use crate::state::resources::described::text;
use crate::state::{
    AnonymousObject, Backing, Description, MAX_OBJECT_BYTES, Region, State, Thread, object_at,
    region,
};

/// Most bytes of a command line that are shown.
const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// All of an image but the content of its memory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// Process number at the checkpoint.
    pub pid: i32,
    /// Path of the program.
    pub exe: String,
    /// The arguments that it was started with; none if their memory is not stored.
    pub arguments: Vec<String>,
    /// Working folder.
    pub cwd: String,
    /// Size of the file.
    pub bytes: u64,
    /// Pages of the process that are stored.
    pub pages: u64,
    /// Those stored in this file.
    pub own_pages: u64,
    /// Bytes that the pages of this file take in it.
    pub stored_bytes: u64,
    /// Bytes of the caller's part.
    pub meta_bytes: u64,
    /// What tells the image from all others.
    pub identity: [u8; 16],
    /// Earlier files that it needs.
    pub ancestors: Vec<AncestorInfo>,
    /// Threads, the first one first.
    pub threads: Vec<ThreadInfo>,
    /// Mappings in order of address.
    pub regions: Vec<RegionInfo>,
    /// Open descriptors.
    pub files: Vec<FileInfo>,
    /// Shared objects without a path.
    pub objects: Vec<ObjectInfo>,
    /// Child processes: their numbers, and what is appended to the name of this file for theirs.
    pub children: Vec<(i32, String)>,
}

/// A shared object that no path leads to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ObjectInfo {
    /// Where it comes from.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Pages that are stored.
    pub pages: u64,
    /// Whether they are in this image, and not in that of another process.
    pub held: bool,
}

/// An earlier file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AncestorInfo {
    /// Its name in the same folder.
    pub name: String,
    /// What tells it from all others.
    pub identity: [u8; 16],
    /// Pages that are taken from it.
    pub pages: u64,
}

/// A thread.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// Its number at the checkpoint.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// The system call that it waits in, if it does.
    pub syscall: Option<u64>,
    /// Blocked signals, a bit each.
    pub blocked: u64,
    /// Signals that wait for it alone.
    pub pending: Vec<u32>,
}

/// A mapping.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegionInfo {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// As in `/proc/PID/maps`: `rwxp`.
    pub mode: String,
    /// What lies behind it: a path, a segment, `[heap]`, `[stack]`, or nothing.
    pub name: String,
    /// Pages that are stored.
    pub pages: u64,
    /// Stored pages by the file that holds them: this one, then its ancestors in their order;
    /// files that hold none are left out.
    pub homes: Vec<(u32, u64)>,
}

/// A file descriptor.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FileInfo {
    /// Its number.
    pub fd: u32,
    /// What it is: `file`, `folder`, `stream`, ...
    pub kind: String,
    /// Its path, or what else tells it from others.
    pub name: String,
    /// Status flags as `fcntl` returns them.
    pub flags: u32,
    /// Position.
    pub offset: u64,
    /// Locks that are held.
    pub locks: usize,
}

impl Image {
    /// Tells what the image holds.
    pub fn inspect(&self) -> Inspection {
        let state = &self.state;
        let layout = &state.layout;
        let arguments = self.strings(layout.arg_start, layout.arg_end, MAX_COMMAND_BYTES);
        let mut homes = vec![0; self.ancestors.len() + 1];
        self.extents.iter().for_each(|e| homes[e.home as usize] += e.pages);
        let ancestors = self.ancestors.iter().zip(&homes[1..]).map(|(a, &pages)| AncestorInfo {
            name: text(&a.name),
            identity: a.identity,
            pages,
        });
        Inspection {
            pid: state.pid,
            exe: text(&state.exe),
            arguments: arguments.iter().map(|a| text(a)).collect(),
            cwd: text(&state.cwd),
            bytes: self.parts[0].file_bytes,
            pages: homes.iter().sum(),
            own_pages: homes[0],
            stored_bytes: self.parts[0].blocks().iter().map(|b| u64::from(b.stored)).sum(),
            meta_bytes: self.meta().len() as u64,
            identity: self.identity(),
            ancestors: ancestors.collect(),
            threads: state.threads.iter().map(thread).collect(),
            regions: state.regions.iter().map(|r| self.region(r)).collect(),
            files: state
                .descriptors
                .iter()
                .map(|d| file(state, d.fd, &state.descriptions[d.description as usize]))
                .collect(),
            objects: (0..).zip(&state.anonymous).map(|(i, o)| self.object(i, o)).collect(),
            children: (1..)
                .zip(&state.tree_node.children)
                .map(|(n, c)| (c.pid, format!(".{n}")))
                .collect(),
        }
    }

    fn object(&self, index: usize, object: &AnonymousObject) -> ObjectInfo {
        let start = object_at(index);
        let stored = self.extents_in(start, start + MAX_OBJECT_BYTES);
        ObjectInfo {
            name: object.shown(),
            bytes: object.bytes,
            pages: stored.iter().map(|e| e.pages).sum(),
            held: object.held,
        }
    }

    fn object_name(&self, index: u32) -> String {
        let object = self.state.anonymous.get(index as usize);
        object.map(AnonymousObject::shown).unwrap_or_default()
    }

    fn region(&self, r: &Region) -> RegionInfo {
        let mut homes: Vec<(u32, u64)> = Vec::new();
        for extent in self.extents_in(r.start, r.end) {
            match homes.iter_mut().find(|h| h.0 == extent.home) {
                Some(home) => home.1 += extent.pages,
                None => homes.push((extent.home, extent.pages)),
            }
        }
        homes.sort_unstable();
        RegionInfo {
            start: r.start,
            end: r.end,
            mode: mode(r),
            name: self.region_name(r),
            pages: homes.iter().map(|h| h.1).sum(),
            homes,
        }
    }

    fn region_name(&self, r: &Region) -> String {
        let layout = &self.state.layout;
        match &r.backing {
            Backing::File { file, .. } => text(&self.state.files[*file as usize].path),
            Backing::Segment { name, .. } => format!("segment {}", text(name)),
            Backing::Anon {} if !r.name.is_empty() => format!("[anon:{}]", text(&r.name)),
            Backing::Anon {} if r.start <= layout.start_brk && layout.brk <= r.end => {
                "[heap]".into()
            }
            Backing::Anon {} if (r.start..r.end).contains(&layout.start_stack) => "[stack]".into(),
            Backing::Anon {} => String::new(),
            Backing::Object { object, .. } => self.object_name(*object),
        }
    }
}

fn mode(r: &Region) -> String {
    let bit = |bit: i32, letter: char| if r.prot & bit as u32 != 0 { letter } else { '-' };
    let shared = if r.flags & region::SHARED != 0 { 's' } else { 'p' };
    let read = bit(libc::PROT_READ, 'r');
    [read, bit(libc::PROT_WRITE, 'w'), bit(libc::PROT_EXEC, 'x'), shared].iter().collect()
}

fn thread(thread: &Thread) -> ThreadInfo {
    let regs = words_to_regs(&thread.regs);
    // What the kernel leaves in an interrupted call's result register.
    let interrupted = (-516..=-512).contains(&(regs.rax as i64));
    let waits = regs.orig_rax as i64 >= 0 && interrupted;
    ThreadInfo {
        tid: thread.tid,
        name: text(&thread.comm),
        ip: regs.rip,
        sp: regs.rsp,
        syscall: waits.then_some(regs.orig_rax),
        blocked: thread.sigmask,
        pending: thread.pending.iter().map(|p| p.signal()).collect(),
    }
}

fn file(state: &State, fd: u32, d: &Description) -> FileInfo {
    let (kind, name) = d.target.describe(&state.around());
    let kind = kind.into();
    FileInfo { fd, kind, name, flags: d.flags, offset: d.offset, locks: d.locks.len() }
}

impl RegionInfo {
    /// Pages of the region.
    pub fn size_pages(&self) -> u64 {
        (self.end - self.start) / PAGE_BYTES
    }

    /// Stored pages that are in the file itself.
    pub fn own_pages(&self) -> u64 {
        self.homes.iter().filter(|h| h.0 == 0).map(|h| h.1).sum()
    }
}
