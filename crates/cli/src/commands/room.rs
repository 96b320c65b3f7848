//! The ranks of a job that wait for programs which others start (`MPI_Comm_spawn`): the keeper,
//! which gives places away, and the places.
//!
//! Kept true: a place is no rank before it is the program. It waits outside of MPI, costs nothing
//! meanwhile, and reads what it is to become without taking it: the program does that.

use eyrie_channel::dormant::Dormant;
use eyrie_core::dynamic::{Command, Order};
use eyrie_core::machine::Machine;
use eyrie_ledger::segment::{GONE_FIRST, GONE_KEEPER};
use eyrie_terminal::{FAILED, Failure};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process;

/// The hidden command of these ranks.
pub const ROOM: &str = "__room";
/// What the keeper has as an argument once somebody has spoken to it.
const KEEP: &str = "keep";
/// The second message of the keeper: the first one says how long it is.
const ORDER: usize = 1;

/// Of the last rank of all the keeper, of others a place.
pub fn room(words: &[std::ffi::OsString]) -> Result<i32, Failure> {
    if words.first().is_some_and(|word| word == KEEP) {
        return keep();
    }
    pass_signals_over(true);
    let dormant = Dormant::from_env().map_err(failed)?;
    let keeper = dormant.size() - 1;
    if dormant.rank() == keeper {
        // Who has begun already comes back as what it was.
        let begins = dormant.wait(|d| {
            let begins = d.is_spoken_to() || (d.has_begun_before() && d.gone() != 0);
            (begins || d.gone() & GONE_FIRST != 0).then_some(begins)
        });
        return if begins { become_keeper() } else { Ok(0) };
    }
    let order = dormant.wait(|d| match d.message(keeper, ORDER) {
        Some(order) => Some(Order::of_bytes(&order)),
        None => (d.gone() & GONE_KEEPER != 0).then_some(Some(Order::End)),
    });
    match order {
        Some(Order::Begin(command, started)) => become_program(&command, started.size()),
        Some(Order::End) => Ok(0),
        None => Err(failed("what it is to become cannot be read")),
    }
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::new(FAILED, anyhow::anyhow!("a rank that waits for programs: {what}"))
}

/// The same process once more, with none of the job's memory.
fn become_keeper() -> Result<i32, Failure> {
    pass_signals_over(false);
    let own = std::env::current_exe().map_err(failed)?;
    Err(failed(process::Command::new(own).args([ROOM, KEEP]).exec()))
}

fn keep() -> Result<i32, Failure> {
    pass_signals_over(true);
    let mut machine = Machine::from_env().map_err(failed)?;
    machine.enter();
    let kept = machine.keep_room();
    kept.map_err(|class| failed(format_args!("error {}", class.0)))?;
    machine.finalize();
    machine.leave();
    Ok(0)
}

fn become_program(command: &Command, ranks: usize) -> Result<i32, Failure> {
    pass_signals_over(false);
    let path = Path::new(OsStr::from_bytes(&command.path));
    let mut program = process::Command::new(path);
    let mut words = command.arguments.iter().map(|word| OsStr::from_bytes(word));
    program.arg0(words.next().unwrap_or_default()).args(words);
    program.current_dir(OsStr::from_bytes(&command.folder));
    program.env("EYRIE_SIZE", ranks.to_string());
    for variable in &command.env {
        let mut parts = variable.splitn(2, |byte| *byte == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        program.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    let error = program.exec();
    Err(failed(format_args!("{}: {error}", path.display())))
}

/// What users send to all ranks is for their programs; it would end who only waits.
fn pass_signals_over(over: bool) {
    let action = if over { libc::SIG_IGN } else { libc::SIG_DFL };
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: no handler is set.
        unsafe { libc::signal(signal, action) };
    }
}
