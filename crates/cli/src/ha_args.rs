//! The command line of `eyrie standby`, and of `eyrie run --ha`.

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

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    eyrie run --ha etcd://e1:2379,e2:2379/eyrie --hosts a,b,c ./solver\n  \
    eyrie standby etcd://e1:2379,e2:2379/eyrie/k7mq     on another machine\n\n\
    Waits until the controller of the job is not heard of for some seconds, then takes its place\n\
    and that of `eyrie run`: prints what was not printed yet, as far as etcd knew (the last lines\n\
    may come twice), and ends with the job's exit code. Of several the first one goes on, the\n\
    others wait for its end. EYRIE_HOME must not be that of an `eyrie run` that lives.")]
pub struct Standby {
    /// The job in etcd, as `eyrie run --ha` says it
    #[arg(value_name = "etcd://HOST:PORT[,HOST:PORT]/PREFIX/JOB")]
    pub job: String,
    #[command(flatten)]
    pub files: HaFiles,
    /// This machine's address as the hosts reach it [default: the one on the way to them]
    #[arg(long, value_name = "ADDR")]
    pub address: Option<String>,
    /// Begin every output line with [rank]
    #[arg(short, long)]
    pub label: bool,
    /// Tell on standard error what happens, with milliseconds since the start
    #[arg(short, long)]
    pub verbose: bool,
}
