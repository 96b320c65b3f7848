//! The ranks of a job that wait for programs which others start (`MPI_Comm_spawn`): the keeper,
//! which gives places away, and the places.
//!
//! Kept true: a place is no rank itself. It waits outside of MPI, costs nothing meanwhile, and
//! reads what it is to run without taking it: the program does that, its child. When that has ended
//! the same command as another child (`ended`) is the rank for a moment and tells the keeper.

use eyrie_channel::dormant::Dormant;
use eyrie_core::dynamic::{Command, NOT_BEGUN, ORDER_VARIABLE, Order};
use eyrie_core::machine::Machine;
use eyrie_ledger::segment::{GONE_FIRST, GONE_KEEPER};
use eyrie_terminal::{FAILED, Failure};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, Child, ExitStatus};
use std::{io, mem};

/// The hidden command of these ranks.
pub const ROOM: &str = "__room";
/// What the keeper has as an argument once somebody has spoken to it.
const KEEP: &str = "keep";
/// What a place's messenger has as an argument; then the number of the program that has ended, and
/// how it did.
const ENDED: &str = "ended";
/// The second message of the keeper: the first one says how long it is.
const ORDER: usize = 1;
/// What users send to all ranks is for their programs; it would end who only waits.
const SIGNALS: [libc::c_int; 6] =
    [libc::SIGUSR1, libc::SIGUSR2, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Of the last rank of all the keeper, of others a place.
pub fn room(words: &[OsString]) -> Result<i32, Failure> {
    let first = words.first().map(OsString::as_os_str);
    if first.is_some_and(|word| word == KEEP) {
        return keep();
    }
    if first.is_some_and(|word| word == ENDED) {
        return tell_ended(&words[1..]);
    }
    pass_over(&SIGNALS[..2]);
    let dormant = Dormant::from_env().map_err(failed)?;
    let keeper = dormant.size() - 1;
    if dormant.rank() < keeper {
        return place(&dormant, keeper);
    }
    // Who has begun already comes back as what it was.
    let begins = dormant.wait(|d| {
        let begins = d.is_spoken_to() || (d.has_begun_before() && d.gone() != 0);
        (begins || d.gone() & GONE_FIRST != 0).then_some(begins)
    });
    if begins { become_keeper() } else { Ok(0) }
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::new(FAILED, anyhow::anyhow!("a rank that waits for programs: {what}"))
}

/// The same process once more, with none of the job's memory.
fn become_keeper() -> Result<i32, Failure> {
    let own = std::env::current_exe().map_err(failed)?;
    Err(failed(process::Command::new(own).args([ROOM, KEEP]).exec()))
}

fn keep() -> Result<i32, Failure> {
    let mut machine = Machine::from_env().map_err(failed)?;
    machine.enter();
    let kept = machine.keep_room();
    kept.map_err(|class| failed(format_args!("error {}", class.0)))?;
    machine.finalize();
    machine.leave();
    Ok(0)
}

/// Runs one program after the other.
fn place(dormant: &Dormant, keeper: u32) -> Result<i32, Failure> {
    loop {
        let number = dormant.next_world();
        let order = dormant.wait(|d| match d.message(keeper, number, ORDER) {
            Some(order) => Some(Order::of_bytes(&order)),
            None => (d.gone() & GONE_KEEPER != 0).then_some(Some(Order::End)),
        });
        let (command, ranks) = match order {
            Some(Order::Begin(command, started)) => (command, started.size()),
            Some(Order::End) => return Ok(0),
            None => return Err(failed("what it is to run cannot be read")),
        };
        // What users send to all is for the program, which may take it.
        pass_over(&SIGNALS);
        let why = match program(&command, ranks, number).spawn() {
            Ok(child) => {
                let ended = end_of(child, dormant).map_err(failed)?;
                let code = as_it(ended);
                if code != 0 && dormant.next_world() != number {
                    return Ok(code);
                }
                code as u32
            }
            Err(error) => NOT_BEGUN + error.raw_os_error().unwrap_or(libc::EINVAL) as u32,
        };
        let told = messenger(number, why).and_then(|mut messenger| messenger.wait());
        match told.map_err(failed)? {
            told if told.success() => act_on(&SIGNALS[2..]),
            told => return Err(failed(format_args!("who tells of ends: {told}"))),
        }
    }
}

fn program(command: &Command, ranks: usize, number: u32) -> process::Command {
    let mut program = process::Command::new(Path::new(OsStr::from_bytes(&command.path)));
    let mut words = command.arguments.iter().map(|word| OsStr::from_bytes(word));
    program.arg0(words.next().unwrap_or_default()).args(words);
    program.current_dir(OsStr::from_bytes(&command.folder));
    program.env("EYRIE_SIZE", ranks.to_string()).env(ORDER_VARIABLE, number.to_string());
    for variable in &command.env {
        let mut parts = variable.splitn(2, |byte| *byte == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        program.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    heeding(program)
}

/// The process acts on signals as it would if nobody had passed them over.
fn heeding(mut command: process::Command) -> process::Command {
    // SAFETY: only system calls.
    unsafe {
        command.pre_exec(|| {
            act_on(&SIGNALS);
            Ok(())
        })
    };
    command
}

/// How a program has ended, once it is collected. Before, it has left MPI.
fn end_of(mut child: Child, dormant: &Dormant) -> io::Result<ExitStatus> {
    let pid = child.id();
    loop {
        // SAFETY: the structure consists of numbers; the call fills it.
        let (done, told) = unsafe {
            let mut told: libc::siginfo_t = mem::zeroed();
            (libc::waitid(libc::P_PID, pid, &raw mut told, libc::WEXITED | libc::WNOWAIT), told)
        };
        match done {
            0 if told.si_code == libc::CLD_EXITED => dormant.note_exit(pid),
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => continue,
            _ => {}
        }
        return child.wait();
    }
}

/// The exit code of a program. Of one that a signal has ended this process is ended, too.
fn as_it(ended: ExitStatus) -> i32 {
    if let Some(signal) = ended.signal() {
        // SAFETY: no handler is set; a process may send itself a signal.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
        }
    }
    ended.code().unwrap_or(FAILED)
}

fn messenger(number: u32, why: u32) -> io::Result<Child> {
    let words = [ROOM.into(), ENDED.into(), number.to_string(), why.to_string()];
    process::Command::new(std::env::current_exe()?).args(words).spawn()
}

/// The messenger.
fn tell_ended(words: &[OsString]) -> Result<i32, Failure> {
    let numbers = words.iter().filter_map(|word| word.to_str()?.parse().ok()).collect::<Vec<u32>>();
    let [number, why] = numbers[..] else { return Err(failed("it is told nothing")) };
    let mut machine = Machine::from_env().map_err(failed)?;
    machine.enter();
    let told = machine.tell_ended(number, why);
    told.map_err(|class| failed(format_args!("error {}", class.0)))?;
    machine.finalize();
    machine.leave();
    Ok(0)
}

fn pass_over(signals: &[libc::c_int]) {
    set(signals, libc::SIG_IGN);
}

fn act_on(signals: &[libc::c_int]) {
    set(signals, libc::SIG_DFL);
}

fn set(signals: &[libc::c_int], action: libc::sighandler_t) {
    for signal in signals {
        // SAFETY: no handler is set.
        unsafe { libc::signal(*signal, action) };
    }
}
