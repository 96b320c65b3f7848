//! `--ha`: a controller's state in etcd, and `eyrie standby`, which waits for that controller's end
//! on another machine and goes on.

use crate::args::Run;
use crate::console;
use crate::ha_args::{HaFiles, Standby};
use crate::hosts;
use crate::launch::{self, End};
use anyhow::{Context, anyhow, bail};
use eyrie_control::ha::HaTls;
use eyrie_control::{ClientMsg, Ha};
use eyrie_node::ha::{Place, Pointer, Seen, point};
use eyrie_node::home;
use eyrie_terminal::{Failure, USAGE};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Between two looks at who leads.
const EVERY: Duration = Duration::from_millis(500);

/// Where `eyrie run` is to keep the controller's state.
pub fn wanted(run: &Run, over_hosts: bool) -> Result<Option<Box<Ha>>, Failure> {
    let usage = |error: anyhow::Error| Failure::new(USAGE, error);
    let Some(text) = &run.ha.ha else {
        return match files_given(&run.ha.files) {
            true => Err(usage(anyhow!("--ha-ca, --ha-cert and --ha-key are for --ha etcds://..."))),
            false => Ok(None),
        };
    };
    check(run, over_hosts).map_err(usage)?;
    let ha = place(text, &run.ha.files).context("--ha").map_err(usage)?;
    // What is wrong with certificates is told before anything begins.
    Place::new(&ha, "-").context("--ha").map_err(usage)?;
    Ok(Some(Box::new(ha)))
}

/// Refuses what a controller on another machine could not go on with.
fn check(run: &Run, over_hosts: bool) -> anyhow::Result<()> {
    if !over_hosts {
        bail!("--ha is for jobs over hosts, which outlive this machine: give --hosts, too");
    }
    if run.controller_limit == Some(0) {
        bail!("--ha and --controller-limit 0: nodes are to outlive their controller");
    }
    if run.save_every.is_some() {
        bail!("--ha and --save-every: what is saved lies on this machine only; leave one out");
    }
    if run.wide.wan_only {
        bail!(
            "--ha and --wan-only: gateways lead nodes to this machine's cluster, where a standby \
             need not be; leave one out"
        );
    }
    Ok(())
}

fn files_given(files: &HaFiles) -> bool {
    files.ha_ca.is_some() || files.ha_cert.is_some() || files.ha_key.is_some()
}

fn place(text: &str, files: &HaFiles) -> anyhow::Result<Ha> {
    let (mut ha, encrypted) = Ha::parse(text)?;
    let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    ha.tls = match (&files.ha_ca, encrypted) {
        (Some(ca), true) => {
            let own = files.ha_cert.as_ref().zip(files.ha_key.as_ref());
            let own = own.map(|(cert, key)| anyhow::Ok((read(cert)?, read(key)?))).transpose()?;
            Some(HaTls { authorities: read(ca)?, own })
        }
        (None, true) => bail!("etcds:// takes --ha-ca, who signs etcd's certificate"),
        (_, false) if files_given(files) => bail!("certificates are for etcds://"),
        (_, false) => None,
    };
    Ok(ha)
}

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
            console::say(&format!("job {job} has ended with exit code {code}"));
            return Ok(code);
        }
        Vacancy::Over(hosts) => hosts,
    };
    let reached = hosts::named(&hosts, args.address.as_deref())?.hosts;
    console::say("the controller is gone; this one goes on");
    match go_on(args, &ha, &job, reached)? {
        End::Code(code) => Ok(code),
        End::Deposed(why) => {
            console::say(&format!("not here: {why}; standing by"));
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
            Ok(Seen { reign: None, .. }) => bail!("there is no job at {} (any more)", state.name),
            Ok(Seen { leader: None, announced: Some(announced), .. }) => {
                return Ok(Vacancy::Over(announced.hosts));
            }
            Ok(seen) => {
                if seen.reign != told {
                    let reign = seen.reign.unwrap_or_default();
                    console::say(&format!("standing by; controller {reign} leads"));
                    told = seen.reign;
                }
                if std::mem::take(&mut away) {
                    console::say("etcd is back");
                }
            }
            Err(eyrie_node::ha::EtcdError::Away(why)) => {
                if told.is_none() {
                    bail!("etcd does not answer: {why}");
                }
                if !std::mem::replace(&mut away, true) {
                    console::say(&format!("etcd does not answer ({why}): waiting for it"));
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
) -> Result<End, Failure> {
    let folder = home::take_over(&home::home()?, job)?;
    let pointer = Pointer { ha: ha.clone(), token: None, hosts };
    point(&folder.path, &pointer).context("job folder")?;
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let order = ClientMsg::Resume { verbose: args.verbose };
    launch::begin_in(&folder, &binary, &order, None, args.label)
}
