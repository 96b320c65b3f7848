//! Inside an instance of Flux (`flux batch`, `flux alloc`): its hosts, and `flux exec`, which knows
//! them by the numbers of their brokers, in the place of the remote shell.

use crate::batch::slurm;
use crate::batch::system::ask;
use crate::hosts::entry::Entry;
use anyhow::{Context, anyhow};
use eyrie_terminal::{FAILED, Failure};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The hosts of the instance, each once, in the order of the brokers.
pub fn hosts() -> anyhow::Result<Vec<Entry>> {
    let mut names = brokers()?;
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names.into_iter().map(|name| Entry::of(name, None)).collect())
}

/// The host of each broker.
fn brokers() -> anyhow::Result<Vec<String>> {
    let list = ask("flux", &["getattr", "hostlist"]);
    let list = list.context("`flux getattr hostlist` does not answer: give --hosts or --nodes")?;
    slurm::expand(list.trim()).with_context(|| format!("hostlist {}", list.trim()))
}

/// Starts a process on a host: this program, as `reach`.
pub fn starter() -> anyhow::Result<Vec<String>> {
    let own = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let own = own.into_os_string().into_string();
    let own = own.map_err(|path| anyhow!("{}: not a name in UTF-8", path.display()))?;
    Ok(vec![own, String::from("__flux")])
}

/// Becomes `flux exec` of this command on the host's broker.
pub fn reach(host: &str, words: &[OsString]) -> Result<i32, Failure> {
    let number = brokers()?.iter().position(|name| name == host);
    let number =
        number.ok_or_else(|| anyhow!("no broker of this instance of Flux is on {host}"))?;
    let mut command = Command::new("flux");
    command.args(["exec", "--rank", &number.to_string()]).args(words);
    Err(Failure::new(FAILED, anyhow::Error::from(command.exec()).context("flux exec")))
}
