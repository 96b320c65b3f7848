//! Whether the processors that this node may use are its job's alone, as far as its surroundings
//! say. Only then are ranks bound without being asked to: a rank that is bound cannot give way.

use crate::cores::{self, Set};

/// By which a job knows that a batch system started it.
const BATCH: [&str; 3] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];
/// ... by others, which do not say what of a node is the job's: Flux, Grid Engine, an Indexed Job
/// of Kubernetes.
const BATCH_TOO: [&str; 3] = ["FLUX_URI", "PE_HOSTFILE", "JOB_COMPLETION_INDEX"];
/// ... by the mpi-operator of Kubernetes: what it mounts into the pod that starts a job over hosts.
const MOUNTED: &str = "/etc/mpi";
/// How many of this node's processors that has given it: Slurm, PBS Pro, Torque; of LSF on all
/// nodes.
const GRANTED: [&str; 4] = ["SLURM_CPUS_ON_NODE", "NCPUS", "PBS_NUM_PPN", "LSB_DJOB_NUMPROC"];

/// Whether `allowed`, what this process may use, is its own.
pub fn is_own(allowed: &[usize]) -> bool {
    is_of(allowed, machine().len(), |name| std::env::var(name).ok())
}

/// Whether this process is in a job of a batch system: SIGTERM tells it that its time is over.
/// `hosts`: its own job is over hosts.
pub fn in_batch(hosts: bool) -> bool {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_launcher = || hosts && std::path::Path::new(MOUNTED).exists();
    BATCH.iter().chain(&BATCH_TOO).any(is_set) || is_launcher()
}

/// `machine`: how many processors there are for everybody.
fn is_of(allowed: &[usize], machine: usize, variable: impl Fn(&str) -> Option<String>) -> bool {
    if BATCH.iter().all(|name| variable(name).is_none()) {
        return allowed.len() < machine;
    }
    let number = |name: &&str| variable(name)?.trim().parse::<usize>().ok();
    // A batch system that does not confine its jobs has several of them on the same processors.
    GRANTED.iter().find_map(number).is_none_or(|granted| allowed.len() <= granted)
}

/// Processors that processes run on which are not told where to.
fn machine() -> Set {
    let list = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{file}"));
        text.map(|text| cores::parse(&text)).unwrap_or_default()
    };
    let isolated = list("isolated");
    list("online").into_iter().filter(|cpu| !isolated.contains(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(allowed: usize, machine: usize, variables: &[(&str, &str)]) -> bool {
        let all: Set = (0..allowed).collect();
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name);
        is_of(&all, machine, |name| find(name).map(|(_, value)| (*value).to_string()))
    }

    #[test]
    fn a_part_of_the_machine_is_ones_own() {
        assert!(!own(8, 8, &[]));
        assert!(own(4, 8, &[]), "a cpuset");
        assert!(!own(8, 0, &[]), "what is not known is not one's own");
        assert!(!own(8, 8, &[("NCPUS", "8"), ("SLURM_CPUS_ON_NODE", "8")]), "no batch system");
    }

    #[test]
    fn a_batch_system_gives_a_job_what_it_has_asked_for() {
        for (id, count) in [
            ("SLURM_JOB_ID", "SLURM_CPUS_ON_NODE"),
            ("PBS_JOBID", "NCPUS"),
            ("PBS_JOBID", "PBS_NUM_PPN"),
            ("LSB_JOBID", "LSB_DJOB_NUMPROC"),
        ] {
            assert!(own(8, 8, &[(id, "7")]));
            assert!(own(8, 8, &[(id, "7"), (count, "8")]));
            assert!(own(4, 8, &[(id, "7"), (count, "4")]));
            assert!(!own(8, 8, &[(id, "7"), (count, "4")]), "{count}: others have the rest");
            assert!(!own(6, 8, &[(id, "7"), (count, "4")]), "{count}");
        }
    }

    #[test]
    fn the_machine_has_what_this_process_may_use() {
        let machine = machine();
        let allowed = cores::allowed(0).unwrap();
        assert!(allowed.iter().all(|cpu| machine.contains(cpu)), "{machine:?} {allowed:?}");
    }
}
