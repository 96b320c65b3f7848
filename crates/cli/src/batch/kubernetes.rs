//! In a pod of Kubernetes: the workers of the mpi-operator's `MPIJob`, by the host file that it
//! mounts; or the pods of an Indexed Job with a headless service, by their names in the DNS.

use crate::batch::system::{ask, variable};
use crate::hosts::entry::{self, Entry};
use anyhow::{Context, anyhow, bail};

/// Where the mpi-operator says which host file it has mounted, by the MPI of the job.
const FILES: [&str; 4] = [
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST_FILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
];
/// ... and where it does so, whatever that is.
const MOUNTED: &str = "/etc/mpi/hostfile";
/// Prints the workers that run.
const DISCOVERS: &str = "/etc/mpi/discover_hosts.sh";
/// The number of pods of an Indexed Job: its `completions`.
const COUNT: &str = "EYRIE_PODS";
const INDEX: &str = "JOB_COMPLETION_INDEX";
/// More hosts than a job can have.
const MOST: u32 = 100_000;

/// The hosts of the job that this pod is of, if it is of one.
pub fn hosts() -> anyhow::Result<Option<Vec<Entry>>> {
    if let Some(count) = variable(COUNT) {
        return indexed(&count).map(Some);
    }
    let named = FILES.into_iter().find_map(variable);
    let path = named.unwrap_or_else(|| MOUNTED.to_string());
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let text = match text.trim().is_empty() {
        true if std::path::Path::new(DISCOVERS).exists() => ask("sh", &[DISCOVERS]),
        true => None,
        false => Some(text),
    };
    let parse = |text: String| entry::parse_file(&text).with_context(|| path.clone());
    text.map(parse).transpose()
}

/// The pods of an Indexed Job, as this one is called.
fn indexed(count: &str) -> anyhow::Result<Vec<Entry>> {
    let number = count.parse().ok().filter(|n| (1..=MOST).contains(n));
    let number: u32 = number.ok_or_else(|| anyhow!("{COUNT}={count} is no number of pods"))?;
    let index = variable(INDEX).with_context(|| format!("{COUNT} is set, and {INDEX} is not"))?;
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let known = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    peers(own.trim(), &index, number, &known)
}

/// `own` is NAME-INDEX; `known`: the lines of /etc/hosts, which have its whole name.
fn peers(own: &str, index: &str, count: u32, known: &str) -> anyhow::Result<Vec<Entry>> {
    let name = own.strip_suffix(index).and_then(|name| name.strip_suffix('-'));
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        bail!(
            "this pod is called '{own}', and not NAME-{index} as {INDEX} says: name the hosts \
               with --hosts"
        );
    };
    let whole = format!("{own}.");
    let words = known.lines().flat_map(|line| line.split('#').take(1));
    let words = words.flat_map(|line| line.split_whitespace().skip(1));
    let domain = words.filter_map(|word| word.strip_prefix(&whole)).next();
    let domain = domain.map(|domain| format!(".{domain}")).unwrap_or_default();
    let entry = |number| Entry::of(format!("{name}-{number}{domain}"), None);
    Ok((0..count).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_called_as_this_one() {
        let known =
            "127.0.0.1 localhost # heat-0.x\n10.1.0.7\theat-0.heat.lab.svc.cluster.local\theat-0\n";
        let names = |own, index, known| {
            let all = peers(own, index, 3, known).map_err(|error| error.to_string())?;
            Ok::<_, String>(all.into_iter().map(|e| e.name).collect::<Vec<_>>().join(" "))
        };
        let domain = "heat.lab.svc.cluster.local";
        let want = format!("heat-0.{domain} heat-1.{domain} heat-2.{domain}");
        assert_eq!(names("heat-0", "0", known), Ok(want));
        assert_eq!(names("a-b-2", "2", ""), Ok("a-b-0 a-b-1 a-b-2".into()));
        for (own, index) in [("heat", "0"), ("heat-1", "0"), ("-0", "0"), ("heat0", "0")] {
            assert!(names(own, index, known).unwrap_err().contains("--hosts"), "{own}");
        }
    }
}
