//! `eyrie join`: the job's ranks are where another launcher has started this very command.
//!
//! Each process speaks PMI with its launcher. The first one publishes a ticket; all call it
//! (`eyrie_launcher::join`); it starts the controller and stays with it as `eyrie run` does, the
//! others stay until it is done.
//!
//! Kept true: an error of the first process before the others know it ends them without a word.

use crate::config::{defaults, folders};
use crate::hosts::address;
use crate::launch::checks::{self, StartedBy};
use crate::launch::console::{self, ConsoleOptions};
use crate::launch::{controller, ha, network, program, spec};
use crate::options::run::Run;
use anyhow::{Context, anyhow};
use eyrie_control::message::{Host, Hosts};
use eyrie_control::pmi::{Pmi, PmiError};
use eyrie_control::{ClientMsg, JobSpec};
use eyrie_launcher::join::board::{self, Board, Seat};
use eyrie_launcher::join::{Card, Ticket, call as helper, host_name, placement, pmix};
use eyrie_state::home::{self, JobFolder};
use eyrie_terminal::{FAILED, Failure, USAGE};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// Where the ticket is put for the others.
const TICKET: &str = "eyrie-ticket";
/// What stands there if there is none.
const NO_TICKET: &str = "-";
/// Longest wait for all processes to call, if none is given.
const JOIN_MS: u64 = 60_000;

pub fn join(run: &Run) -> Result<i32, Failure> {
    folders::choose_local(run.storage.local.local.as_deref())?;
    run.checking.choose();
    run.repeat.choose_order();
    // What a file says of other jobs than this one does not count.
    let fits = |run: &Run| {
        refuse(run)?;
        checks::anywhere(run)?;
        ha::wanted(run, false).map(drop)
    };
    let relaxed = defaults::relaxed(run, fits)?;
    let run = relaxed.as_ref().unwrap_or(run);
    refuse(run)?;
    let Launched { fd, rank, size, speaker } = launched().map_err(|e| Failure::new(USAGE, e))?;
    let card = Card::new(rank, host_name()).context("this process")?;
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|n| placement::is_launchers(n)).collect::<Vec<_>>() {
        // SAFETY: this process has one thread.
        unsafe { std::env::remove_var(name) };
    }
    let mut pmi = Pmi::new(File::from(fd)).map_err(failed)?;
    let ended = match rank {
        0 => first(run, &mut pmi, size, card),
        // Without it the launcher ends all.
        _ => Ok(other(&mut pmi, &card)?),
    };
    // The launcher would take its absence for a crash; its failure is no concern any more.
    let _ = pmi.finalize();
    if let Some(mut speaker) = speaker {
        let _ = speaker.wait();
    }
    ended
}

/// The connection to the launcher, and which of how many processes this is.
struct Launched {
    fd: OwnedFd,
    rank: u32,
    size: u32,
    /// The process that speaks PMIx, if the launcher does.
    speaker: Option<Child>,
}

fn failed(error: PmiError) -> Failure {
    Failure::new(FAILED, anyhow!("eyrie join: {error}"))
}

/// What the launcher decides.
fn refuse(run: &Run) -> Result<(), Failure> {
    let options = [
        ("-n", run.size.is_some()),
        ("--nodes", run.placement.nodes.is_some()),
        ("--hosts", run.placement.hosts.is_some()),
        ("--config", run.placement.config.is_some()),
        ("--ha", run.ha.ha.is_some()),
        ("--rsh", run.host_options.rsh.is_some()),
        ("--prefix", run.host_options.prefix.is_some()),
        ("--oversubscribe", run.host_options.oversubscribe),
        ("--map", run.placement.map.is_some()),
        ("--ppn", run.placement.ppn.is_some()),
        ("--rankfile", run.placement.rankfile.is_some()),
        (run.ft.places().unwrap_or_default(), run.ft.places().is_some()),
        ("--routers", run.node_options.routers.is_some()),
        ("--spawn-room", run.placement.spawn_room.is_some()),
        ("--spare-ranks", run.placement.spare_ranks.is_some()),
        ("--netns", run.node_options.netns),
    ];
    let given = options.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
    checks::refuse_elsewhere(match given.or_else(|| run.cluster_options.given()) {
        Some(name) => format!("{name} is for eyrie run: here the launcher says where ranks are"),
        None if run.limits.controller_limit.is_some_and(|limit| limit > 0) => {
            String::from("--controller-limit is for eyrie run: here nodes end with the controller")
        }
        None => return Ok(()),
    })
}

fn launched() -> anyhow::Result<Launched> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.trim().parse::<u32>().ok());
    let (Some(fd), Some(rank), Some(size)) =
        (number("PMI_FD"), number("PMI_RANK"), number("PMI_SIZE"))
    else {
        if pmix::is_served() {
            let (speaker, fd, rank, size) = pmix::start()?;
            check(rank, size)?;
            return Ok(Launched { fd, rank, size, speaker: Some(speaker) });
        }
        return Err(anyhow!(
            "eyrie join is to be started by a launcher that speaks PMI or PMIx (neither PMI_FD nor \
             PMIX_RANK is set): mpiexec -n 4 eyrie join PROGRAM, or srun --mpi=pmi2 -n 4 eyrie \
             join PROGRAM; without a launcher use eyrie run"
        ));
    };
    check(rank, size)?;
    let fd = i32::try_from(fd).context("PMI_FD")?;
    // SAFETY: plain system call; a number that is not open is refused by it.
    if fd < 3 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(anyhow!(
            "PMI_FD={fd} is not open: what started this process has closed it: have the launcher \
             start the program, or eyrie join, without a wrapper"
        ));
    }
    // SAFETY: the descriptor is open, it was handed down for us, and nobody else here knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(Launched { fd, rank, size, speaker: None })
}

fn check(rank: u32, size: u32) -> anyhow::Result<()> {
    let most = eyrie_ledger::segment::MAX_RANKS;
    if size == 0 || size > most || rank >= size {
        return Err(anyhow!("rank {rank} of {size}: a job has 1 to {most} ranks"));
    }
    Ok(())
}

/// Any process but the first.
fn other(pmi: &mut Pmi<File>, card: &Card) -> Result<i32, Failure> {
    // The first one ends the job, and then this process; its launcher signals all of them.
    let held = eyrie_terminal::hold(&console::PASSED);
    pmi.barrier().map_err(failed)?;
    let text = pmi.get(TICKET).map_err(failed)?.unwrap_or_default();
    if text == NO_TICKET {
        return Ok(FAILED);
    }
    let name = || format!("process {}", card.rank);
    let ticket = Ticket::decode(&text);
    let ticket = ticket.context("what the first process has put is no ticket");
    let stream = placement::take(&ticket.with_context(name)?, card).with_context(name)?;
    placement::stay(stream, held.before).with_context(name)?;
    Ok(0)
}

/// What there must be before the others are told.
struct Prepared {
    binary: PathBuf,
    spec: JobSpec,
    folder: JobFolder,
    board: Board,
}

fn prepare(run: &Run, size: u32) -> Result<Prepared, Failure> {
    checks::anywhere(run)?;
    // Refuses what belongs to it: it itself is refused above.
    ha::wanted(run, false)?;
    let program = program::program_elsewhere(&run.command)?;
    let spec = spec::describe(run, size, &program, run.saving.at_rest.spec()?)?;
    controller::check_store(&spec)?;
    let binary = program::own_binary(spec.protection.ft.protects())?;
    let addresses = address::own_addresses(run.host_options.address.as_deref())?;
    let folder = home::create(&home::home()?)?;
    let board = Board::open(&folder.id, addresses).context("cannot listen for the others")?;
    Ok(Prepared { binary, spec, folder, board })
}

/// The process that has the console.
fn first(run: &Run, pmi: &mut Pmi<File>, size: u32, card: Card) -> Result<i32, Failure> {
    let prepared = prepare(run, size);
    let ticket = prepared.as_ref().map(|p| p.board.ticket.encode());
    let text = ticket.unwrap_or_else(|_| NO_TICKET.into());
    pmi.put(TICKET, &text).map_err(failed)?;
    pmi.barrier().map_err(failed)?;
    let prepared = prepared?;
    let folder = prepared.folder.path.clone();
    let ended = gather_and_run(run, prepared, card);
    if !home::stays(&folder) {
        let _ = std::fs::remove_dir_all(&folder);
    }
    ended
}

fn gather_and_run(run: &Run, prepared: Prepared, card: Card) -> Result<i32, Failure> {
    let Prepared { binary, mut spec, folder, board } = prepared;
    let limit = Duration::from_millis(run.host_options.join_limit.unwrap_or(JOIN_MS));
    let ticket = board.ticket.clone();
    // Threads hold the signals back, so that the console gets them.
    let metrics = run.metrics.open(run.output.quiet)?;
    let held = eyrie_terminal::hold(&console::PASSED);
    let own = std::thread::spawn(move || match placement::take(&ticket, &card) {
        Ok(stream) => placement::stay(stream, held.before),
        Err(error) => Err(error),
    });
    let tell = |text: String| eyrie_terminal::say(crate::messages::NAME, &text);
    let mut seats =
        board.gather(spec.program.size, limit, tell).map_err(|e| Failure::new(FAILED, e))?;
    let plan = plan(seats.iter().map(|s| s.card.host.as_str()));
    let nodes = plan.hosts.len() as u32;
    let spares = run.placement.spares.unwrap_or(0);
    let over = if nodes > 1 { nodes.saturating_sub(spares).max(1) } else { 0 };
    let relaxed = defaults::relaxed(run, |run: &Run| checks::over(run, over, StartedBy::Join))?;
    let run = relaxed.as_ref().unwrap_or(run);
    checks::over(run, over, StartedBy::Join)?;
    if relaxed.is_some() {
        let program = PathBuf::from(OsString::from_vec(spec.program.path));
        spec = spec::describe(run, spec.program.size, &program, run.saving.at_rest.spec()?)?;
    }
    if nodes > 1 {
        spec.placement.homes =
            plan.homes_without(spares).map_err(|error| Failure::new(USAGE, error))?;
        spec.program.size = spec.placement.homes.len() as u32;
    }
    let waiting = match nodes {
        1 => {
            board::widen(seats.iter().map(|s| &s.card));
            None
        }
        _ => Some(employ(run, &mut spec, &binary, &folder, plan, &mut seats)?),
    };
    // SAFETY: the mask is the one that was.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &held.before, std::ptr::null_mut()) };
    let order = ClientMsg::Start(Box::new(spec));
    let ended = controller::start_in(
        &folder,
        &binary,
        &order,
        None,
        ConsoleOptions { label: run.output.label, quiet: run.output.quiet, metrics },
    );
    let _ = std::fs::remove_file(folder.path.join(board::SOCKET));
    // All who wait are done, and so is what runs here.
    drop((waiting, seats));
    let _ = own.join();
    ended
}

/// Nodes in the order of their first ranks.
struct Plan {
    /// Name, and the number of the process that runs the keeper.
    hosts: Vec<(String, u32)>,
    /// Of each process.
    homes: Vec<u32>,
}

impl Plan {
    /// The homes of the ranks where the last nodes are spares: the processes there are none, the
    /// others in their order are.
    fn homes_without(&self, spares: u32) -> anyhow::Result<Vec<u32>> {
        let all = self.hosts.len() as u32;
        let nodes = all.saturating_sub(spares);
        if nodes == 0 {
            return Err(anyhow!(
                "--spares {spares}: the launcher has put the processes on {all} nodes, one of \
                 which at least is to have ranks"
            ));
        }
        Ok(self.homes.iter().copied().filter(|home| *home < nodes).collect())
    }
}

/// Of the name of each rank's node.
fn plan<'a>(names: impl Iterator<Item = &'a str>) -> Plan {
    let (mut hosts, mut homes): (Vec<(String, u32)>, Vec<u32>) = (Vec::new(), Vec::new());
    for (name, rank) in names.zip(0u32..) {
        // A status line is made of it.
        let name = name.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
        let home = hosts.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            hosts.push((name, rank));
            hosts.len() - 1
        });
        homes.push(home as u32);
    }
    Plan { hosts, homes }
}

/// Lets the controller reach the nodes.
fn employ(
    run: &Run,
    spec: &mut JobSpec,
    binary: &Path,
    folder: &JobFolder,
    plan: Plan,
    seats: &mut Vec<Seat>,
) -> anyhow::Result<board::Waiting> {
    let towards: Vec<Option<IpAddr>> =
        plan.hosts.iter().map(|(_, rank)| Some(seats[*rank as usize].here)).collect();
    let controllers = match run.host_options.address.as_deref() {
        Some(_) => {
            address::own_addresses(run.host_options.address.as_deref())?.repeat(towards.len())
        }
        None => address::choose(&towards, None).unwrap_or_default(),
    };
    let path = |p: &Path| p.as_os_str().to_os_string().into_vec();
    let list = plan.hosts.iter().zip(controllers);
    let list =
        list.map(|((name, _), controller)| Host { name: name.clone(), controller, gateway: None });
    let rsh = vec![path(binary), b"__call".to_vec(), path(&folder.path)];
    let join_ms = run.host_options.join_limit.unwrap_or(JOIN_MS);
    let (list, binary) = (list.collect(), path(binary));
    // The launcher's processes hold the nodes, and go with the first one.
    let hosts = Hosts { list, rsh, shell: false, binary, join_ms, outlive: false };
    spec.placement.nodes = plan.hosts.len() as u32 - spec.placement.spares;
    spec.protection.ft = run.mode(spec.placement.nodes);
    spec.placement.hosts = Some(Box::new(hosts));
    network::choose(run, spec)?;
    let cards: Vec<Card> = seats.iter().map(|s| s.card.clone()).collect();
    let mut leaders = Vec::new();
    for (node, (name, rank)) in (0u32..).zip(&plan.hosts) {
        let here = cards.iter().zip(&plan.homes).filter(|(_, home)| **home == node);
        let all: BTreeSet<u32> = here.flat_map(|(c, _)| c.processors.iter().copied()).collect();
        if let Some(at) = seats.iter().position(|s| s.card.rank == *rank) {
            leaders.push((name.clone(), seats.swap_remove(at), all.into_iter().collect()));
        }
    }
    board::serve(&folder.path, leaders).context("cannot listen for the controller's helpers")
}

/// Speaks PMIx for an `eyrie join`.
pub fn speak() -> Result<i32, Failure> {
    pmix::run().context("PMIx").map_err(|e| Failure::new(FAILED, e))?;
    Ok(0)
}

/// The helper in the place of a remote shell.
pub fn call(folder: &Path, host: &str) -> Result<i32, Failure> {
    helper::run(folder, host).map_err(|e| Failure::new(FAILED, e))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_told_apart_by_their_names() {
        let plan = plan(["b", "a", "b", "a c"].into_iter());
        let hosts = [("b".into(), 0), ("a".into(), 1), ("a_c".into(), 3)];
        assert_eq!((plan.hosts, plan.homes), (hosts.to_vec(), vec![0, 1, 0, 2]));
    }

    #[test]
    fn the_last_nodes_are_spares_and_have_no_ranks() {
        let plan = plan(["b", "a", "c", "b", "a"].into_iter());
        assert_eq!(plan.homes_without(0).unwrap(), [0, 1, 2, 0, 1]);
        assert_eq!(plan.homes_without(1).unwrap(), [0, 1, 0, 1]);
        assert_eq!(plan.homes_without(2).unwrap(), [0, 0]);
        let error = plan.homes_without(3).unwrap_err().to_string();
        assert!(error.contains("on 3 nodes"), "{error}");
    }
}
