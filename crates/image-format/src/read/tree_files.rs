//! The files of a family: what an image says of those of the process's children, and theirs.
//!
//! Kept true: of a file only the frame and the state are read, under their checksums; what it names
//! lies beside it, under names that are made here; there are no more files than processes.

use crate::error::ImageError;
use crate::read::frame::Part;
use crate::read::image::Image;
use crate::state::process_tree::{MAX_PROCESSES, TreeNode};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The image of a child, as that of its parent tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildFile {
    /// Where it is to lie.
    pub path: PathBuf,
    pid: i32,
    identity: [u8; 16],
}

impl ChildFile {
    /// Whether it lies there, and is the one that did when its parent's was written.
    pub fn is_there(&self) -> bool {
        Head::of(&self.path).is_ok_and(|head| self.is(&head))
    }

    fn is(&self, head: &Head) -> bool {
        head.identity == self.identity && head.pid == self.pid
    }
}

/// What a file tells of its process.
struct Head {
    pid: i32,
    identity: [u8; 16],
    tree_node: TreeNode,
}

impl Head {
    fn of(path: &Path) -> Result<Head, ImageError> {
        let part = Part::open(path)?;
        let state = part.state()?;
        Ok(Head { pid: state.pid, identity: part.identity, tree_node: state.tree_node })
    }

    fn children(&self, path: &Path) -> Result<Vec<ChildFile>, ImageError> {
        if self.tree_node.children.len() >= MAX_PROCESSES {
            return Err(ImageError::Invalid("too many processes".into()));
        }
        let file = |(n, child): (usize, &crate::state::process_tree::Child)| ChildFile {
            path: child_path(path, n),
            pid: child.pid,
            identity: child.identity,
        };
        Ok(self.tree_node.children.iter().enumerate().map(file).collect())
    }
}

impl Image {
    /// The files that belong to children of the process whose image lies here.
    pub fn child_files(path: &Path) -> Result<Vec<ChildFile>, ImageError> {
        Head::of(path)?.children(path)
    }

    /// The number of the process in this file, and how many children it has with images.
    pub fn number(path: &Path) -> Result<(i32, usize), ImageError> {
        Head::of(path).map(|head| (head.pid, head.tree_node.children.len()))
    }

    /// All files that an image consists of, but those of earlier images: its own and those of the
    /// process's descendants, a parent before its children. Each is there, and the right one.
    pub fn tree_files(path: &Path) -> Result<Vec<PathBuf>, ImageError> {
        let mut found = vec![path.to_path_buf()];
        below(&Head::of(path)?, path, &mut found)?;
        Ok(found)
    }
}

fn below(head: &Head, path: &Path, to: &mut Vec<PathBuf>) -> Result<(), ImageError> {
    for child in head.children(path)? {
        let blame = |source| ImageError::Child {
            pid: child.pid,
            path: child.path.clone(),
            source: Box::new(source),
        };
        let invalid = |what: &str| blame(ImageError::Invalid(what.into()));
        if to.len() >= MAX_PROCESSES {
            return Err(invalid("too many processes"));
        }
        let its = Head::of(&child.path).map_err(blame)?;
        if !child.is(&its) {
            return Err(invalid(REPLACED));
        }
        to.push(child.path.clone());
        below(&its, &child.path, to)?;
    }
    Ok(())
}

/// What is wrong with a child's image of another time.
pub const REPLACED: &str = "it was replaced after the image of its parent was written";

/// The image of child `n`, counted from 0, of the process whose image is `path`.
pub fn child_path(path: &Path, n: usize) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{}", n + 1));
    name.into()
}

/// Removes an image and those of the process's descendants.
pub fn remove_image(path: &Path) -> io::Result<()> {
    let result = fs::remove_file(path);
    let own = path.file_name().unwrap_or_default().as_bytes();
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))?.flatten() {
        let name = entry.file_name();
        let rest = name.as_bytes().strip_prefix(own).unwrap_or_default();
        let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        let mut parts = rest.split(|&b| b == b'.');
        if parts.next() == Some(b"") && rest.len() > 1 && parts.all(digits) {
            fs::remove_file(entry.path())?;
        }
    }
    result
}
