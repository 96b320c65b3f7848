//! The images of a family: opened together, and listed in the order in which they are restored.

use crate::error::ImageError;
use crate::read::image::{Check, Image};
use crate::read::tree_files::{self, REPLACED};
use crate::state::process_tree::{Ended, MAX_PROCESSES, Member, TreeNode};
use std::path::Path;

/// Opens the images of the children of the process whose image, `path`, was opened, and theirs.
/// Each must be the one that was there when its parent's was written.
pub fn open_children(
    path: &Path,
    tree_node: &TreeNode,
    check: Check,
) -> Result<Vec<Image>, ImageError> {
    let mut left = MAX_PROCESSES - 1;
    open_below(path, tree_node, check, &mut left)
}

fn open_below(
    path: &Path,
    tree_node: &TreeNode,
    check: Check,
    left: &mut usize,
) -> Result<Vec<Image>, ImageError> {
    let mut all = Vec::new();
    for (n, child) in tree_node.children.iter().enumerate() {
        let path = tree_files::child_path(path, n);
        let blame = |source| ImageError::Child {
            pid: child.pid,
            path: path.clone(),
            source: Box::new(source),
        };
        let invalid = |what: &str| blame(ImageError::Invalid(what.into()));
        *left = left.checked_sub(1).ok_or_else(|| invalid("too many processes"))?;
        let mut image = Image::open_alone(&path, check).map_err(blame)?;
        if image.identity() != child.identity || image.state.pid != child.pid {
            return Err(invalid(REPLACED));
        }
        image.children = open_below(&path, &image.state.tree_node, check, left)?;
        all.push(image);
    }
    Ok(all)
}

/// A process of a family, as its images tell it.
pub enum Account<'a> {
    /// It has an image of its own.
    Alive(&'a Image),
    /// It has ended and was not waited for.
    Ended(&'a Ended),
}

/// The processes of a family in order: a parent before its children.
pub fn accounts(first: &Image) -> Vec<(Member, Account<'_>)> {
    let mut all = Vec::new();
    list(first, 0, &mut all);
    all
}

fn list<'a>(image: &'a Image, parent: usize, to: &mut Vec<(Member, Account<'a>)>) {
    let (own, tree_node) = (to.len(), &image.state.tree_node);
    let (group, session) = (tree_node.group, tree_node.session);
    to.push((Member { pid: image.state.pid, parent, group, session }, Account::Alive(image)));
    for child in &image.children {
        list(child, own, to);
    }
    for ended in &tree_node.ended {
        let (pid, group, session) = (ended.pid, ended.group, ended.session);
        to.push((Member { pid, parent: own, group, session }, Account::Ended(ended)));
    }
}
