//! What every machine of a job is to have.

use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::{machine, storage, tools};
use crate::commands::info;
use std::path::Path;

/// What every machine of a job is to have.
pub fn here(binary: &Path) -> Vec<Finding> {
    let mut all = vec![tools::installed(binary)];
    all.extend(machine::look(&info::machine()));
    all.extend(storage::look());
    all
}
