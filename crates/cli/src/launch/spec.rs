//! The job that options ask for, as its controller is told.

use crate::batch::grace::grace_ms;
use crate::config::timing;
use crate::options::checkpoints::CkptMode;
use crate::options::run::Run;
use crate::options::saving::{SaveEvery, key_path};
use eyrie_control::{
    AtRest, Bind, CheckpointPolicy, Dedup, JobSpec, Placement, Program, Protection, Security,
    Storage, Timing, Transport,
};
use eyrie_vault::Scheme;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Send log of each rank when none is asked for.
const LOG_BYTES: u64 = 512 << 20;
/// Ranks of a router if nothing else is said.
const ROUTER_SHARE: u32 = 4;
/// How long nodes go on without a controller if nothing else is said.
const CONTROLLER_LIMIT_MS: u64 = 60_000;

/// The least that is taken when memory is short.
const LEAST_LOG_BYTES: u64 = 16 << 20;

/// The job that `run` asks for, on one node.
pub fn describe(run: &Run, ranks: u32, program: &Path, at_rest: AtRest) -> anyhow::Result<JobSpec> {
    Ok(JobSpec {
        program: Program {
            path: program.as_os_str().as_bytes().to_vec(),
            argv: argv(&run.command),
            size: ranks,
            name: run.naming.name.clone(),
            input_is_file: input_is_file(),
            verbose: run.output.verbose,
        },
        placement: Placement {
            spares: run.placement.spares.unwrap_or(0),
            netns: run.node_options.netns,
            bind: bind(run.placement.bind, run.placement.exclusive),
            transport: run.network.transport(Transport::Tcp),
            ignore_features: run.processor.ignore_feature.clone(),
            ..Placement::default()
        },
        protection: protection(run, ranks),
        storage: Storage {
            vault: vault(run),
            manner: run.storage.vault_options.manner(Vec::new()),
            keep: run.keep,
            save_to: run.saving.save_to.clone(),
            save_rate_bytes: run.saving.save_rate.unwrap_or(0),
            ha: None,
        },
        security: Security {
            tls: run.network.tls,
            at_rest,
            save_key: run.saving.save_key.as_deref().map(key_path),
        },
        timing: Timing {
            checkpoint_every_ms: run.checkpoints.ckpt_every,
            checkpoint_first_ms: run.checkpoints.ckpt_first,
            save_every_ms: run.saving.save_every.map_or(0, SaveEvery::millis),
            save_every_generations: run.saving.save_every.map_or(0, SaveEvery::generations),
            controller_limit_ms: run.limits.controller_limit.unwrap_or(CONTROLLER_LIMIT_MS),
            grace_ms: grace_ms(run.limits.grace, run.placement.nodes.is_none()),
            intervals: timing::read()?,
        },
    })
}

fn vault(run: &Run) -> Scheme {
    run.storage.vault.unwrap_or(Scheme::Partner)
}

/// How ranks are checkpointed and logged in this mode.
fn protection(run: &Run, ranks: u32) -> Protection {
    let (ft, vault) = (run.mode(0), vault(run));
    Protection {
        ft,
        checkpoint_policy: match ft.all_go_back() {
            // All have one turn.
            true => CheckpointPolicy::Auto,
            false => policy(run.checkpoints.ckpt_policy, vault),
        },
        incremental: run.checkpoints.ckpt == CkptMode::Incremental,
        freeze: run.checkpoints.ckpt_freeze,
        dedup: match run.checkpoints.ckpt_dedup {
            Dedup::Auto if ft.all_go_back() => Dedup::Off,
            asked => asked,
        },
        log_limit_bytes: run.storage.log_limit.unwrap_or_else(|| default_log(ranks)),
        log_replicas: run.storage.log_replicas.unwrap_or(vault.tolerates().max(1) as u32),
        clocks: run.repeat.clocks,
        strict_output: run.repeat.strict_output,
        appended: run.repeat.appended,
        orphans: run.repeat.orphans,
        files: run.repeat.files,
        files_limit_bytes: run.repeat.files_limit,
        fallback: run.repeat.fallback_every,
    }
}

/// Whether images go to a vault, where they share parity.
pub fn has_parity(vault: Scheme) -> bool {
    matches!(vault, Scheme::Rs { .. } | Scheme::Xor { .. })
}

fn policy(asked: Option<CheckpointPolicy>, vault: Scheme) -> CheckpointPolicy {
    match asked {
        Some(policy) => policy,
        None if has_parity(vault) => CheckpointPolicy::Batch,
        None => CheckpointPolicy::Auto,
    }
}

/// Ranks of each router, if there are routers.
pub fn router_share(run: &Run) -> Option<u32> {
    run.ft.is_routed().then(|| run.node_options.routers.unwrap_or(ROUTER_SHARE))
}

fn bind(asked: Option<Bind>, exclusive: bool) -> Bind {
    asked.unwrap_or(if exclusive { Bind::Own } else { Bind::Auto })
}

/// Whether our standard input is a file, which has an end.
pub fn input_is_file() -> bool {
    // SAFETY: stat is plain data for which zero is valid, and a valid place for the answer.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(0, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

pub fn argv(command: &[OsString]) -> Vec<Vec<u8>> {
    command.iter().map(|w| w.as_bytes().to_vec()).collect()
}

/// Half a gibibyte for each rank, but all of them together at most a quarter of the memory.
pub fn default_log(size: u32) -> u64 {
    let all = eyrie_image::meminfo("MemTotal");
    let share = all.map_or(LOG_BYTES, |bytes| bytes / 4 / u64::from(size));
    LOG_BYTES.min(share).max(LEAST_LOG_BYTES)
}
