//! Why a rank's process did not come to be.

use std::io;

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("{0}")]
    Os(#[from] io::Error),
    #[error("{0}")]
    Restore(#[from] eyrie_image::RestoreError),
    #[error("the sockets of the ranks: {0}")]
    Sockets(String),
    #[error("the restorer program is missing")]
    NoRestorer,
}
