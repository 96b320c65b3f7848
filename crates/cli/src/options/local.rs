//! Where nodes store what they store: `--local`.

use clap::Args;
use std::path::PathBuf;

/// Where nodes store what they store.
#[derive(Debug, Clone, Args)]
pub struct Local {
    /// Where each node keeps images, logs and copies: a folder of its own machine, best on a fast
    /// disk; it is made if the one around it is there. They are in DIR/eyrie-UID, and go with the
    /// job; what is saved is in EYRIE_HOME (over nodes) [env: EYRIE_LOCAL] [default: in an
    /// allocation SLURM_TMPDIR or TMPDIR of the node, unless that takes memory; else EYRIE_HOME]
    #[arg(long = "local", value_name = "DIR")]
    pub local: Option<PathBuf>,
}
