//! Opening an image: every byte is under a checksum, and every checksum is checked before anything
//! in the file is believed; those of pages that are about to be loaded, when they are. Then the
//! content is held against itself ([`crate::check`]).
//!
//! Content may lie in earlier files of the same folder. Of these only the frame and the blocks that
//! are needed are read, and each must be the very file that was there when this one was written.

use crate::bytes::encoding;
use crate::bytes::layout::{
    Ancestor, Extent, MAX_ANCESTORS, MAX_META_BYTES, MAX_NAME_BYTES, MAX_TABLE_BYTES, section,
};
use crate::check;
use crate::error::ImageError;
use crate::read::blocks::{self, Pace, Wants};
use crate::read::frame::Part;
use crate::read::tree_images;
use crate::state::State;
use crate::state::path_of;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// An opened and fully verified image.
#[derive(Debug)]
pub struct Image {
    pub state: State,
    /// Where the content of memory is, in order of address.
    pub extents: Vec<Extent>,
    /// The file itself, then its ancestors in their order.
    pub parts: Vec<Part>,
    pub ancestors: Vec<Ancestor>,
    /// The blocks that hold the content.
    pub wants: Wants,
    meta: Vec<u8>,
    /// Images of its children.
    pub children: Vec<Image>,
}

/// What an image holds, in figures.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Process number at capture.
    pub pid: i32,
    /// Name of the program.
    pub comm: String,
    /// Where it works.
    pub cwd: std::path::PathBuf,
    /// Threads.
    pub threads: usize,
    /// Memory mappings.
    pub regions: usize,
    /// Open files (without standard streams and devices).
    pub files: usize,
    /// Pages of 4 KiB of the process.
    pub pages: u64,
    /// How many of them are stored in this file.
    pub own_pages: u64,
    /// Earlier files that it needs.
    pub ancestors: usize,
    /// Size of the file.
    pub bytes: u64,
}

/// What is verified when an image is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Every byte that is needed.
    All,
    /// All but the blocks of pages, which are held against their checksums when they are read.
    Tables,
}

impl Image {
    /// Opens and verifies the image, and those of the process's children; an error says what is
    /// wrong with it.
    pub fn open(path: &Path) -> Result<Image, ImageError> {
        Image::open_tree(path, Check::All)
    }

    /// The same, where the pages in files of some identities were verified before
    /// ([`Image::verify_own`]).
    pub fn open_knowing(
        path: &Path,
        known: impl Fn(&[u8; 16]) -> bool,
    ) -> Result<Image, ImageError> {
        let image = Image::open_tree(path, Check::Tables)?;
        image.verify_unknown(&known, &|_| Ok(()))?;
        Ok(image)
    }

    /// The same, all of it, no faster than `pace` lets blocks be read.
    pub fn open_at_pace(path: &Path, pace: Pace<'_>) -> Result<Image, ImageError> {
        let image = Image::open_tree(path, Check::Tables)?;
        image.verify_unknown(&|_| false, pace)?;
        Ok(image)
    }

    fn verify_unknown(
        &self,
        known: &impl Fn(&[u8; 16]) -> bool,
        pace: Pace<'_>,
    ) -> Result<(), ImageError> {
        let knows: Vec<bool> = self.parts.iter().map(|p| known(&p.identity)).collect();
        blocks::verify_others(&self.parts, &self.wants, |part| knows[part], pace)?;
        self.children.iter().try_for_each(|child| {
            child.verify_unknown(known, pace).map_err(|source| ImageError::Child {
                pid: child.state.pid,
                path: child.parts[0].path().into(),
                source: Box::new(source),
            })
        })
    }

    /// Verifies the pages that lie in this file itself, no faster than `pace` lets blocks be read.
    /// Returns its identity.
    pub fn verify_own(path: &Path, pace: Pace<'_>) -> Result<[u8; 16], ImageError> {
        let parts = [Part::open(path)?];
        blocks::verify_others(&parts, &Wants::default(), |_| false, pace)?;
        Ok(parts[0].identity)
    }

    /// What tells the image that lies here from all others; pages are not looked at.
    pub fn identity_of(path: &Path) -> Result<[u8; 16], ImageError> {
        Ok(Part::open(path)?.identity)
    }

    /// The same with a choice of what is verified.
    pub fn open_tree(path: &Path, check: Check) -> Result<Image, ImageError> {
        let mut image = Image::open_alone(path, check)?;
        image.children = tree_images::open_children(path, &image.state.tree_node, check)?;
        Ok(image)
    }

    /// The same without those of its children.
    pub fn open_alone(path: &Path, check: Check) -> Result<Image, ImageError> {
        let own = Part::open(path)?;
        let ancestors = ancestors(&own)?;
        let extents: Vec<Extent> = own.list(section::RUNS, "run table", MAX_TABLE_BYTES)?;
        let state = own.state()?;
        let meta = own.section(section::META, "caller's part", MAX_META_BYTES)?;
        let mut parts = vec![own];
        for ancestor in &ancestors {
            parts.push(open_ancestor(path, ancestor)?);
        }
        let homes: Vec<u64> = parts.iter().map(Part::pages).collect();
        check::check(&state, &extents, &homes).map_err(ImageError::Invalid)?;
        let wants = Wants::new(&parts, &extents);
        if check == Check::All {
            blocks::verify(&parts, &wants)?;
        }
        Ok(Image { state, extents, parts, ancestors, wants, meta, children: vec![] })
    }

    /// The caller's bytes.
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    /// What tells this image from all others.
    pub fn identity(&self) -> [u8; 16] {
        self.parts[0].identity
    }

    /// Names of the earlier files in the same folder that it needs.
    pub fn ancestors(&self) -> impl Iterator<Item = &OsStr> {
        self.ancestors.iter().map(|a| OsStr::from_bytes(&a.name))
    }

    /// The same for an image of which only the frame is read and verified.
    pub fn needs(path: &Path) -> Result<Vec<OsString>, ImageError> {
        let list = ancestors(&Part::open(path)?)?;
        Ok(list.into_iter().map(|a| OsString::from_vec(a.name)).collect())
    }

    /// Images of the process's children that were checkpointed with it.
    pub fn children(&self) -> &[Image] {
        &self.children
    }

    /// Numbers of its processes and threads, of those that it was checkpointed with, and of those
    /// that had ended.
    pub fn numbers(&self) -> Vec<i32> {
        let threads = self.state.threads.iter().map(|thread| thread.tid);
        let ended = self.state.tree_node.ended.iter().map(|ended| ended.pid);
        let own = std::iter::once(self.state.pid).chain(threads).chain(ended);
        own.chain(self.children.iter().flat_map(Image::numbers)).collect()
    }

    /// What it holds, in figures.
    pub fn summary(&self) -> Summary {
        let own = self.extents.iter().filter(|e| e.home == 0);
        Summary {
            pid: self.state.pid,
            comm: String::from_utf8_lossy(&self.state.leader().comm).into_owned(),
            cwd: path_of(&self.state.cwd).into(),
            threads: self.state.threads.len(),
            regions: self.state.regions.len(),
            files: self.state.descriptions.iter().filter(|d| d.target.file().is_some()).count(),
            pages: self.extents.iter().map(|e| e.pages).sum(),
            own_pages: own.map(|e| e.pages).sum(),
            ancestors: self.ancestors.len(),
            bytes: self.parts[0].file_bytes,
        }
    }
}

/// Reads the list of earlier files; their names stay within the folder.
pub fn ancestors(own: &Part) -> Result<Vec<Ancestor>, ImageError> {
    const LIMIT: u64 = (MAX_ANCESTORS * (MAX_NAME_BYTES + 20) + 4) as u64;
    let invalid = |what: &str| ImageError::Invalid(format!("list of earlier files: {what}"));
    let bytes = own.section(section::ANCESTORS, "list of earlier files", LIMIT)?;
    let list: Vec<Ancestor> = encoding::decode(&bytes).map_err(|_| invalid("malformed"))?;
    if list.len() > MAX_ANCESTORS {
        return Err(invalid("too many"));
    }
    for (i, ancestor) in list.iter().enumerate() {
        let name = ancestor.name.as_slice();
        let plain = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
        if !plain || name.contains(&b'/') || name.contains(&0) || name == b"." || name == b".." {
            return Err(invalid("a name"));
        }
        if list[..i].iter().any(|a| a.name == ancestor.name) {
            return Err(invalid("a name twice"));
        }
    }
    Ok(list)
}

pub fn open_ancestor(path: &Path, ancestor: &Ancestor) -> Result<Part, ImageError> {
    let name = OsStr::from_bytes(&ancestor.name);
    let blame = |source| ImageError::Ancestor {
        name: name.to_string_lossy().into_owned(),
        source: Box::new(source),
    };
    let part = Part::open(&path.with_file_name(name)).map_err(blame)?;
    if part.identity != ancestor.identity {
        let what = "it was replaced after the image that needs it was written";
        return Err(blame(ImageError::Invalid(what.into())));
    }
    Ok(part)
}

#[cfg(test)]
#[path = "image_tests.rs"]
pub(crate) mod tests;
