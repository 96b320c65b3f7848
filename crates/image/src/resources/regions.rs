//! From the kernel's list of mappings to the regions of an image: what lies behind each, which
//! flags bring it back exactly, and what cannot be brought back.

use crate::error::CaptureError;
use crate::kernel::inode::is_shown_as;
use crate::kernel::procfs::Mapping;
use crate::resources::open::{file_id, segment_name};
use crate::resources::shared_memory::objects::AnonymousObjects;
use eyrie_image_format::state::{Backing, FileId, Region, region};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

/// `VmFlags` and what they are here.
const FLAGS: [(&[u8; 2], u32); 14] = [
    (b"gd", region::GROWSDOWN),
    (b"nr", region::NORESERVE),
    (b"dp", region::DROPPABLE),
    (b"hg", region::HUGE),
    (b"nh", region::NO_HUGE),
    (b"dd", region::DONT_DUMP),
    (b"dc", region::DONT_FORK),
    (b"wf", region::WIPE_ON_FORK),
    (b"mg", region::MERGEABLE),
    (b"rr", region::RANDOM),
    (b"sr", region::SEQUENTIAL),
    (b"lo", region::LOCKED),
    (b"lf", region::LOCKED_ON_FAULT),
    (b"sl", region::SEALED),
];

/// Which content of a region goes into the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// None: shared, or such as the kernel may drop.
    Nothing,
    /// Pages that the process has changed.
    Own,
    /// All pages, because the file behind cannot be had again.
    All,
}

/// Regions in order, each with what is stored of it, and the files behind them.
#[derive(Debug, Default)]
pub struct Regions {
    /// The regions.
    pub list: Vec<(Region, Content)>,
    /// The files.
    pub files: Vec<FileId>,
    /// Shared objects that are known.
    pub anonymous: AnonymousObjects,
    /// What was found of the files, by what a mapping says: one may be mapped tens of thousands of
    /// times.
    known: HashMap<(Vec<u8>, u64, u64), Option<u32>>,
}

impl Regions {
    /// Those of mappings with their flags.
    pub fn of(maps: &[Mapping], anonymous: AnonymousObjects) -> Result<Regions, CaptureError> {
        let mut regions = Regions { anonymous, ..Regions::default() };
        maps.iter().try_for_each(|m| regions.add(m))?;
        Ok(regions)
    }

    /// Whether none begins before the end of the one before it: then no two are the same memory,
    /// as they may be in a list that was read while the kernel joined some.
    pub fn are_apart(&self) -> bool {
        self.list.is_sorted_by(|a, b| a.0.end <= b.0.start)
    }

    /// Adds one mapping of the process.
    pub fn add(&mut self, m: &Mapping) -> Result<(), CaptureError> {
        if m.is_special() || m.is_vsyscall() || m.is_of_descriptor() {
            return Ok(());
        }
        refuse(m)?;
        let (backing, content) = if m.shared {
            (self.shared(m)?, Content::Nothing)
        } else if m.has(b"dp") {
            (Backing::Anon {}, Content::Nothing)
        } else {
            self.private(m)?
        };
        let flags = flags(m, &backing)?;
        let name = m.path.strip_prefix(b"[anon:").and_then(|n| n.strip_suffix(b"]"));
        let region = Region {
            start: m.start,
            end: m.end,
            prot: m.prot,
            flags,
            backing,
            name: name.unwrap_or_default().to_vec(),
            key: m.pkey,
        };
        self.list.push((region, content));
        Ok(())
    }

    /// Takes over what the mappings, of which it was made, turned out to be marked with.
    pub fn mark(&mut self, maps: &[Mapping]) -> Result<(), CaptureError> {
        for (region, _) in &mut self.list {
            if let Ok(i) = maps.binary_search_by_key(&region.start, |m| m.start) {
                region.flags = flags(&maps[i], &region.backing)?;
                region.key = maps[i].pkey;
            }
        }
        Ok(())
    }

    fn private(&mut self, m: &Mapping) -> Result<(Backing, Content), CaptureError> {
        let unnamed = m.path.starts_with(b"/dev/zero") || m.path.starts_with(b"/anon_hugepage");
        if m.is_anon() || unnamed {
            return Ok((Backing::Anon {}, Content::Own));
        }
        // What it has no copy of is that of the object, also when nothing else leads to that any
        // more. A huge page is mapped by a descriptor of its own kind only.
        if let Some(object) = self.anonymous.index(m.dev, m.ino).filter(|_| !m.has(b"ht")) {
            return Ok((Backing::Object { object: object as u32, offset: m.offset }, Content::Own));
        }
        match self.file(m) {
            Some(backing) => Ok((backing, Content::Own)),
            None if m.has(b"ht") => Err(CaptureError::Mapping {
                start: m.start,
                what: "a private mapping of a file of huge pages without a path".into(),
            }),
            None => Ok((Backing::Anon {}, Content::All)),
        }
    }

    fn shared(&mut self, m: &Mapping) -> Result<Backing, CaptureError> {
        if let Some(name) = segment_name(&m.path) {
            return Ok(Backing::Segment { name, offset: m.offset });
        }
        if let Some(object) = self.anonymous.index(m.dev, m.ino) {
            self.anonymous.note_page_size(object, m.page_shift);
            return Ok(Backing::Object { object: object as u32, offset: m.offset });
        }
        if let Some(backing) = self.file(m) {
            return Ok(backing);
        }
        let shown = String::from_utf8_lossy(&m.path);
        let what = format!("a shared mapping of what is no plain file ({shown})");
        Err(CaptureError::Mapping { start: m.start, what })
    }

    /// The file behind a mapping, if its path still leads to it and it can be read.
    fn file(&mut self, m: &Mapping) -> Option<Backing> {
        let key = (m.path.clone(), m.dev, m.ino);
        let files = &mut self.files;
        let plain = self.anonymous.plain(m.dev, m.ino).filter(|_| m.shared);
        let known = self.known.entry(key).or_insert_with(|| {
            let id = plain.cloned().or_else(|| identify(m))?;
            files.push(id);
            Some(files.len() as u32 - 1)
        });
        known.map(|file| Backing::File { file, offset: m.offset })
    }
}

/// The file behind a mapping, if its path still leads to it and it can be read.
pub fn identify(m: &Mapping) -> Option<FileId> {
    identify_at(&m.path, m)
}

/// The same by another path.
pub fn identify_at(path: &[u8], m: &Mapping) -> Option<FileId> {
    let name = path;
    let path = OsString::from_vec(name.to_vec());
    let meta = fs::metadata(&path).ok()?;
    let same = meta.is_file() && is_shown_as(path.as_ref(), &meta, (m.dev, m.ino));
    (same && fs::File::open(&path).is_ok()).then(|| file_id(name.to_vec(), &meta))
}

/// What a mapping is marked with.
fn flags(m: &Mapping, backing: &Backing) -> Result<u32, CaptureError> {
    let mut flags = FLAGS.iter().filter(|(f, _)| m.has(f)).fold(0, |all, (_, bit)| all | bit);
    if m.shared {
        flags |= region::SHARED;
        if m.has(b"mw") {
            flags |= region::MAY_WRITE;
        }
    }
    if m.has(b"ht") && *backing == (Backing::Anon {}) {
        flags |= huge_flag(m)?;
    }
    Ok(flags)
}

/// The flag for the size of its huge pages.
fn huge_flag(m: &Mapping) -> Result<u32, CaptureError> {
    match m.page_shift {
        21 => Ok(region::HUGE_2M),
        30 => Ok(region::HUGE_1G),
        shift => Err(CaptureError::Mapping {
            start: m.start,
            what: format!("made of pages of {} bytes", 1u64 << shift),
        }),
    }
}

fn refuse(m: &Mapping) -> Result<(), CaptureError> {
    let what = if m.has(b"ss") {
        "a shadow stack"
    } else if m.has(b"io") || m.has(b"pf") {
        "memory of a device"
    } else if m.has(b"um") || m.has(b"uw") {
        "watched by userfaultfd"
    } else {
        return Ok(());
    };
    let what = format!("{what} ({})", String::from_utf8_lossy(&m.path));
    Err(CaptureError::Mapping { start: m.start, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs;

    #[test]
    fn what_was_joined_while_it_was_listed_is_found() {
        let listed = |second: &str| {
            let text = format!("1000-3000 rw-p 00000000 00:00 0\n{second} rw-p 00000000 00:00 0\n");
            let mut regions = Regions::default();
            procfs::parse_maps(text.as_bytes())
                .unwrap()
                .iter()
                .for_each(|m| regions.add(m).unwrap());
            regions
        };
        assert!(listed("3000-5000").are_apart() && listed("4000-5000").are_apart());
        assert!(!listed("1000-5000").are_apart());
    }
}
