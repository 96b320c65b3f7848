//! The hosts of the allocation that this process is in, how many ranks each is to run, and what
//! starts a process there.

use crate::batch::system::{System, in_path, is_here, system};
use crate::batch::{flux, host_files, kubernetes, slurm};
use crate::hosts::entry::Entry;
use anyhow::{Context, anyhow};

/// The hosts that a batch system has given.
#[derive(Debug)]
pub struct Allocation {
    pub system: System,
    pub entries: Vec<Entry>,
    /// Starts a process on the host whose name follows. None: the remote shell does.
    pub starter: Option<Vec<String>>,
}

/// The hosts of the allocation that this process is in. None: it is in none, or has but this
/// machine (Slurm says what a task may use, so there it is asked all the same).
pub fn allocation() -> anyhow::Result<Option<Allocation>> {
    let Some(system) = system() else { return Ok(None) };
    let found = given(system).with_context(|| format!("this is {}", system.name()))?;
    let alone = |entries: &[Entry]| matches!(entries, [one] if is_here(&one.name));
    let elsewhere = |entries: &Vec<Entry>| system == System::Slurm || !alone(entries);
    let Some(entries) = found.filter(elsewhere) else { return Ok(None) };
    let starter = match system {
        System::Slurm => Some(slurm::SRUN.split(' ').map(String::from).collect()),
        System::Flux => Some(flux::starter()?),
        System::Lsf => in_path(&["blaunch"]),
        System::Sge => in_path(&["qrsh", "-inherit"]),
        // The task manager's `pbs_tmrsh` passes no standard input on.
        System::Pbs | System::Pods => None,
    };
    Ok(Some(Allocation { system, entries, starter }))
}

/// The hosts that it has given, if it says which.
fn given(system: System) -> anyhow::Result<Option<Vec<Entry>>> {
    let listed = match system {
        System::Slurm => return slurm::hosts(),
        System::Flux => flux::hosts().map(Some),
        System::Pbs => host_files::pbs(),
        System::Lsf => host_files::lsf(),
        System::Sge => host_files::sge(),
        System::Pods => kubernetes::hosts(),
    }?;
    match listed {
        Some(entries) if entries.is_empty() => Err(anyhow!("it names no host")),
        other => Ok(other),
    }
}

/// Whether this process is in a job of a batch system that says which hosts it has.
pub fn gives_hosts() -> bool {
    system().is_some_and(|system| matches!(given(system), Ok(Some(_))))
}

/// The number of tasks that the allocation was made for.
pub fn tasks() -> Option<u32> {
    match system()? {
        System::Slurm => slurm::tasks(),
        // All processors of the nodes are an instance's, whatever it is to run.
        System::Flux => None,
        system => {
            let slots = given(system).ok()??.into_iter().map(|entry| entry.slots);
            slots.sum::<Option<u32>>().filter(|sum| *sum > 0)
        }
    }
}
