//! Where a controller's state is kept for a standby, and how etcd is reached: `--ha`.

use clap::Args;
use std::path::PathBuf;

/// Where the controller's state is kept besides.
#[derive(Debug, Args)]
pub struct HaArgs {
    /// Keep the controller's state in etcd: `eyrie standby` on another machine goes on with the job
    /// when this one is gone (over --hosts; etcds:// with TLS)
    #[arg(long, value_name = "etcd://HOST:PORT[,HOST:PORT]/PREFIX")]
    pub ha: Option<String>,
    #[command(flatten)]
    pub files: HaFiles,
}

/// Certificates for etcds://, as PEM files.
#[derive(Debug, Args)]
pub struct HaFiles {
    /// With etcds://: the certificates of those that sign etcd's (PEM)
    #[arg(long, value_name = "FILE")]
    pub ha_ca: Option<PathBuf>,
    /// With etcds://: our own certificate, if etcd asks for one (PEM)
    #[arg(long, value_name = "FILE", requires = "ha_key")]
    pub ha_cert: Option<PathBuf>,
    /// With etcds://: its key (PEM)
    #[arg(long, value_name = "FILE", requires = "ha_cert")]
    pub ha_key: Option<PathBuf>,
}
