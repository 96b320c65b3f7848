//! Where `eyrie run --ha` has the controller's state kept, and whether a standby could go on with
//! the job.

use crate::launch::checks;
use crate::options::ha::HaFiles;
use crate::options::run::Run;
use anyhow::{Context, bail};
use eyrie_control::Ha;
use eyrie_control::ha::HaTls;
use eyrie_ha::Place;
use eyrie_terminal::{Failure, USAGE};
use std::path::Path;

/// Where `eyrie run` is to keep the controller's state.
pub fn wanted(run: &Run, over_hosts: bool) -> Result<Option<Box<Ha>>, Failure> {
    let usage = |error: anyhow::Error| Failure::new(USAGE, error);
    let Some(text) = &run.ha.ha else {
        return match files_given(&run.ha.files) {
            true => {
                Err(checks::conflict("--ha-ca, --ha-cert and --ha-key are for --ha etcds://..."))
            }
            false => Ok(None),
        };
    };
    check(run, over_hosts).map_err(checks::conflict)?;
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
    if run.limits.controller_limit == Some(0) {
        bail!("--ha and --controller-limit 0: nodes are to outlive their controller");
    }
    if run.saving.save_every.is_some() {
        bail!("--ha and --save-every: what is saved lies on this machine only; leave one out");
    }
    if run.cluster_options.wan_only {
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

pub fn place(text: &str, files: &HaFiles) -> anyhow::Result<Ha> {
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
