//! `eyrie standby`: waits for the end of a controller on another machine, and goes on with its job.

use crate::launch::console::ConsoleOptions;
use crate::launch::controller::{self, Ended};
use crate::launch::ha::place;
use crate::launch::hosts;
use crate::messages;
use crate::options::ha::HaFiles;
use crate::options::metrics::MetricsArgs;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use eyrie_control::{ClientMsg, Ha};
use eyrie_ha::{Place, Pointer, Seen};
use eyrie_node::point_to_etcd;
use eyrie_state::home;
use eyrie_terminal::{Failure, USAGE};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

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
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// Begin every output line with [rank]
    #[arg(short, long)]
    pub label: bool,
    /// Tell on standard error what happens, with milliseconds since the start
    #[arg(short, long)]
    pub verbose: bool,
}

/// Between two looks at who leads.
const EVERY: Duration = Duration::from_millis(500);

pub fn standby(args: &Standby) -> Result<i32, Failure> {
    let usage = |error: anyhow::Error| Failure::new(USAGE, error);
    let mut ha = place(&args.job, &args.files).map_err(usage)?;
    let form = || usage(anyhow!("'{}' names no job: etcd://HOST:PORT/PREFIX/JOB", args.job));
    let (prefix, job) = ha.prefix.rsplit_once('/').ok_or_else(form)?;
    let (prefix, job) = (prefix.to_string(), job.to_string());
    ha.prefix = prefix;
    let state = Place::new(&ha, &job)?;
    let hosts = match await_vacancy(&state)? {
        Vacancy::Ended(code) => {
            messages::say(&format!("job {job} has ended with exit code {code}"));
            return Ok(code);
        }
        Vacancy::Over(hosts) => hosts,
    };
    let reached = hosts::named(&hosts, args.address.as_deref())?.hosts;
    messages::say("the controller is gone; this one goes on");
    match go_on(args, &ha, &job, reached)? {
        Ended::Code(code) => Ok(code),
        Ended::Deposed(why) => {
            messages::say(&format!("not here: {why}; standing by"));
            // With signals and standard input as they were at the beginning.
            let own = std::env::current_exe().context("cannot find the eyrie binary itself")?;
            let error = Command::new(own).args(std::env::args_os().skip(1)).exec();
            Err(anyhow!(error).context("eyrie standby").into())
        }
    }
}

enum Vacancy {
    Ended(i32),
    /// Nobody leads; its nodes are there.
    Over(Vec<String>),
}

/// Waits until nobody leads the job.
fn await_vacancy(state: &Place) -> anyhow::Result<Vacancy> {
    let (mut away, mut told) = (false, None);
    loop {
        match state.look() {
            Ok(Seen { ended: Some(code), .. }) => return Ok(Vacancy::Ended(code)),
            Ok(Seen { term: None, .. }) => bail!("there is no job at {} (any more)", state.name),
            Ok(Seen { leader: None, announced: Some(announced), .. }) => {
                return Ok(Vacancy::Over(announced.hosts));
            }
            Ok(seen) => {
                if seen.term != told {
                    let term = seen.term.unwrap_or_default();
                    messages::say(&format!("standing by; controller {term} leads"));
                    told = seen.term;
                }
                if std::mem::take(&mut away) {
                    messages::say("etcd is back");
                }
            }
            Err(eyrie_ha::EtcdError::Unreachable(why)) => {
                if told.is_none() {
                    bail!("etcd does not answer: {why}");
                }
                if !std::mem::replace(&mut away, true) {
                    messages::say(&format!("etcd does not answer ({why}): waiting for it"));
                }
            }
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(EVERY);
    }
}

fn go_on(
    args: &Standby,
    ha: &Ha,
    job: &str,
    hosts: Vec<eyrie_control::message::Host>,
) -> Result<Ended, Failure> {
    let folder = home::take_over(&home::home()?, job)?;
    let pointer = Pointer { ha: ha.clone(), token: None, hosts };
    point_to_etcd(&folder.path, &pointer).context("job folder")?;
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let order = ClientMsg::Resume { verbose: args.verbose };
    let metrics = args.metrics.open(false)?;
    let shows = ConsoleOptions { label: args.label, quiet: false, metrics };
    controller::begin_in(&folder, &binary, &order, None, shows)
}
