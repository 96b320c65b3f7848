//! Which batch system this process is in, and how one is asked.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longest wait for an answer of a batch system's command.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What has given this process its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    Slurm,
    /// PBS Pro, OpenPBS, Torque.
    Pbs,
    Lsf,
    Flux,
    /// Grid Engine, in a parallel environment.
    Sge,
    /// A pod of Kubernetes: the launcher of an `MPIJob`, or the first of an Indexed Job.
    Pods,
}

impl System {
    /// How it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            System::Slurm => "an allocation of Slurm",
            System::Pbs => "a job of PBS",
            System::Lsf => "a job of LSF",
            System::Flux => "an instance of Flux",
            System::Sge => "a parallel environment of Grid Engine",
            System::Pods => "a job of Kubernetes",
        }
    }
}

/// A variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// The batch system whose job this process is in, the innermost: Flux runs within others.
pub fn system() -> Option<System> {
    by_variables(|name| variable(name).is_some())
}

fn by_variables(is_set: impl Fn(&str) -> bool) -> Option<System> {
    // A task that Flux started is one of its program's, which `eyrie join` is for.
    let in_flux = is_set("FLUX_URI") && !is_set("FLUX_TASK_RANK");
    let pod = is_set("KUBERNETES_SERVICE_HOST");
    let all = [
        (System::Flux, in_flux),
        (System::Slurm, is_set("SLURM_JOB_ID")),
        (System::Pbs, is_set("PBS_JOBID") && is_set("PBS_NODEFILE")),
        (System::Lsf, is_set("LSB_JOBID")),
        (System::Sge, is_set("JOB_ID") && is_set("PE_HOSTFILE")),
        (System::Pods, pod),
    ];
    all.into_iter().find(|(_, there)| *there).map(|(system, _)| system)
}

/// Whether a signal is the batch system's way to say that the job's time is over: LSF at the run
/// limit, Grid Engine with `qsub -notify`.
pub fn ends_by(signal: i32) -> bool {
    signal == libc::SIGUSR2 && matches!(system(), Some(System::Lsf | System::Sge))
}

/// A command with its options, if it is there.
pub fn in_path(words: &[&str]) -> Option<Vec<String>> {
    let found = words.first().and_then(|name| eyrie_process::program::find(name.as_ref()).ok());
    found.map(|_| words.iter().map(|word| (*word).to_string()).collect())
}

/// Whether a host's name is this machine's, with or without its domain.
pub fn is_here(host: &str) -> bool {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    is_same(host, own.trim())
}

fn is_same(host: &str, own: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let whole = host.contains('.') && own.contains('.');
    if whole { host.eq_ignore_ascii_case(own) } else { first(host) == first(own) }
}

/// What a command of a batch system prints, if it succeeds in time.
pub fn ask(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut out = child.stdout.take()?;
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = tell.send(out.read_to_string(&mut text).is_ok().then_some(text));
    });
    let text = told.recv_timeout(ANSWER_LIMIT).ok().flatten();
    if text.is_none() {
        let _ = child.kill();
    }
    let ended = child.wait().ok()?;
    text.filter(|_| ended.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_system_is_known_by_its_variables() {
        let of = |names: &str| {
            let all: Vec<&str> = names.split(' ').collect();
            by_variables(|name| all.contains(&name))
        };
        assert_eq!(of("SLURM_JOB_ID"), Some(System::Slurm));
        assert_eq!(of("PBS_JOBID PBS_NODEFILE"), Some(System::Pbs));
        assert_eq!(of("LSB_JOBID"), Some(System::Lsf));
        assert_eq!(of("JOB_ID PE_HOSTFILE"), Some(System::Sge));
        assert_eq!(of("FLUX_URI SLURM_JOB_ID"), Some(System::Flux), "the innermost");
        assert_eq!(of("FLUX_URI FLUX_TASK_RANK"), None, "a task of Flux's own");
        assert_eq!(of("KUBERNETES_SERVICE_HOST"), Some(System::Pods));
        for other in ["", "PBS_JOBID", "JOB_ID", "PE_HOSTFILE"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_host_is_this_one_with_and_without_its_domain() {
        assert!(is_same("n1", "n1.cluster") && is_same("n1.cluster", "n1") && is_same("N1", "n1"));
        assert!(is_same("n1.cluster", "n1.cluster"));
        assert!(!is_same("n1.east", "n1.west") && !is_same("n1", "n2") && !is_same("n1", "n10"));
    }

    #[test]
    fn a_command_that_fails_or_is_not_there_says_nothing() {
        assert_eq!(ask("echo", &["a"]).as_deref(), Some("a\n"));
        assert_eq!(ask("false", &[]), None);
        assert_eq!(ask("no-such-command-of-a-batch-system", &[]), None);
    }
}
