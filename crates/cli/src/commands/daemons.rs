//! Hidden commands: the processes that Eyrie starts as daemons.

use crate::config::folders;
use anyhow::Context;
use clap::Args;
use eyrie_image::OwnPids;
use eyrie_launcher::host_supervisor as keeper;
use eyrie_node::daemon;
use eyrie_node::serve;
use eyrie_process::spawn::Prefix;
use eyrie_terminal::{FAILED, Failure};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Node {
    #[arg(long)]
    pub id: String,
    #[arg(long)]
    pub folder: PathBuf,
    #[arg(long)]
    pub console_fd: i32,
    #[arg(long)]
    pub lock_fd: i32,
    #[arg(long)]
    pub own_pids: bool,
    #[arg(long)]
    pub metrics_fd: Option<i32>,
    #[arg(long)]
    pub metrics_file: Option<PathBuf>,
}

/// The daemon's side.
pub fn node(node: Node) -> Result<i32, Failure> {
    if node.own_pids {
        have_own_pids()?;
    }
    log_to_stderr();
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let options = serve::Options {
        id: node.id,
        folder: node.folder,
        console: inherited(node.console_fd)?,
        lock: inherited(node.lock_fd)?,
        prefix: Prefix::of(&binary),
        metrics: (node.metrics_fd.map(inherited).transpose()?, node.metrics_file),
    };
    Ok(serve::run(options)?)
}

/// A node of a job with several.
pub fn member() -> Result<i32, Failure> {
    have_own_pids()?;
    log_to_stderr();
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    daemon::run(Prefix::of(&binary))?;
    Ok(0)
}

/// A node on another host than its controller.
/// `commands`: all commands with their options, which configuration files may set.
pub fn host(commands: &clap::Command) -> Result<i32, Failure> {
    log_to_stderr();
    folders::put_hosts_folders(commands)?;
    Ok(keeper::run()?)
}

/// The gateway of a cluster.
pub fn gateway() -> Result<i32, Failure> {
    log_to_stderr();
    eyrie_node::gateway::run()?;
    Ok(0)
}

/// Goes where ranks can be given the numbers that they had, if this user cannot choose them here.
/// What is refused is told by the checkpoint that needs it.
fn have_own_pids() -> Result<(), Failure> {
    let entered = eyrie_image::enter_if(OwnPids::chosen(None), &[]);
    entered.map(drop).map_err(|why| Failure::new(FAILED, anyhow::Error::msg(why)))
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("EYRIE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Whose log cannot be written is not to die of saying so.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let log = log.with_writer(std::io::stderr);
    log.log_internal_errors(false).init();
}

/// Takes over a descriptor the CLI handed down; ranks do not inherit it.
fn inherited(fd: i32) -> Result<OwnedFd, Failure> {
    // SAFETY: plain system call; a number that is not open is refused by it.
    if fd < 3 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(Failure::new(FAILED, anyhow::anyhow!("descriptor {fd} was not handed down")));
    }
    // SAFETY: the descriptor is open, was handed down for us, and nobody else here knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
