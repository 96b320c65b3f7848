//! A process that no Eyrie has started, but another launcher as one of several: it would take
//! itself for a job of one rank, and so would the others.
//!
//! Kept true: what a process is told is by its environment alone; of a process that nobody has
//! started as one of several nothing is found.

/// What is said in place of all that: `EYRIE_ALONE=1`.
pub const ALONE: &str = "EYRIE_ALONE";

/// Who started this process, and as which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    by: &'static str,
    /// What to type before the program.
    instead: &'static str,
    rank: u32,
    /// Nothing if that is not told.
    size: Option<u32>,
    /// Whether it can be asked who the others are.
    pub speaks: bool,
}

/// A launcher: its name, what to type, and the variables of its processes' numbers and count.
type Known = (&'static str, &'static str, &'static str, &'static str);

const KNOWN: [Known; 10] = [
    ("hydra", "mpiexec -n N eyrie join", "PMI_RANK", "PMI_SIZE"),
    ("Open MPI", "mpirun -n N eyrie join", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("srun", "srun --mpi=pmi2 eyrie join", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("PMIx", "LAUNCHER -n N eyrie join", "PMIX_RANK", "PMIX_SIZE"),
    ("MVAPICH", "mpiexec -n N eyrie join", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("mpirun_rsh", "eyrie run -n N", "MPIRUN_RANK", "MPIRUN_NPROCS"),
    ("jsrun", "eyrie run -n N", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("Flux", "eyrie run -n N", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("PALS", "mpiexec -n N eyrie join", "PALS_RANKID", "PALS_SIZE"),
    ("MPT", "eyrie run -n N", "MPT_MPI_RANK", "MPT_MPI_SIZE"),
];

/// Who started this process, by its environment, if it is one of several.
pub fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    if variable(ALONE).is_some_and(|v| !v.is_empty() && v != "0") {
        return None;
    }
    let number = |name: &str| variable(name).and_then(|v| v.trim().parse::<u32>().ok());
    let by_pmi = ["PMI_FD", "PMI_RANK", "PMI_SIZE"].iter().all(|name| number(name).is_some());
    let by_pmix = number("PMIX_RANK").is_some() && variable("PMIX_NAMESPACE").is_some();
    let speaks = by_pmi || by_pmix;
    let found = KNOWN.iter().find_map(|(by, instead, rank, size)| {
        let (rank, size) = (number(rank)?, number(size)?);
        (size > 1).then_some(Launched { by, instead, rank, size: Some(size), speaks })
    });
    if found.is_some() {
        return found;
    }
    let one = |size: &str| number(size) == Some(1);
    if KNOWN.iter().any(|(_, _, rank, size)| number(rank).is_some() && one(size)) {
        return None;
    }
    // A batch script has the first number, and the number of all tasks; it is alone.
    let step = variable("SLURM_STEP_ID").is_some() || variable("SLURM_STEPID").is_some();
    match (number("SLURM_PROCID"), number("SLURM_NTASKS")) {
        (Some(rank), Some(size)) if size > 1 && (rank > 0 || step) => {
            let (by, instead) = ("srun", "srun --mpi=pmi2 eyrie join");
            return Some(Launched { by, instead, rank, size: Some(size), speaks });
        }
        _ => {}
    }
    let (by, instead) = ("PMIx", "LAUNCHER -n N eyrie join");
    let rank = number("PMIX_RANK").filter(|_| by_pmix)?;
    Some(Launched { by, instead, rank, size: None, speaks })
}

impl std::fmt::Display for Launched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.size.map_or(String::from("N"), |n| n.to_string());
        let instead = self.instead.replace("-n N", &format!("-n {size}"));
        let of = self.size.map_or(String::new(), |n| format!(" of {n}"));
        let run = format!("eyrie run -n {size}");
        let or = if instead == run { String::new() } else { format!(", or `{run} PROGRAM`") };
        write!(
            f,
            "{} has started this process as rank {}{of}, and each would be a job of one rank: type \
             `{instead} PROGRAM`{or} ({ALONE}=1 lets each be one)",
            self.by, self.rank
        )
    }
}

#[cfg(test)]
mod tests {

    fn told(all: &str) -> Option<String> {
        let words = all.split(' ').filter_map(|word| word.split_once('='));
        let words: Vec<_> = words.collect();
        let of = |name: &str| words.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        super::of(of).map(|l| format!("{} {}/{:?} {}", l.by, l.rank, l.size, l.speaks))
    }

    #[test]
    fn one_of_several_is_told_from_one_that_is_alone() {
        let table = [
            ("PMI_RANK=1 PMI_SIZE=4 PMI_FD=7", "hydra 1/Some(4) true"),
            ("PMI_RANK=1 PMI_SIZE=4", "hydra 1/Some(4) false"),
            (
                "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0 PMIX_NAMESPACE=x",
                "Open MPI 0/Some(2) true",
            ),
            ("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4", "srun 0/Some(4) false"),
            ("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=0", "srun 0/Some(4) false"),
            ("SLURM_PROCID=2 SLURM_NTASKS=4", "srun 2/Some(4) false"),
            ("PMIX_RANK=0 PMIX_NAMESPACE=x", "PMIx 0/None true"),
            ("MPIRUN_RANK=1 MPIRUN_NPROCS=2", "mpirun_rsh 1/Some(2) false"),
        ];
        for (environment, want) in table {
            assert_eq!(told(environment).as_deref(), Some(want), "{environment}");
            assert_eq!(told(&format!("{environment} EYRIE_ALONE=1")), None, "{environment}");
        }
        for alone in [
            "",
            "PMI_RANK=0 PMI_SIZE=1 PMI_FD=7",
            "SLURM_PROCID=0 SLURM_NTASKS=4",
            "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0",
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0 PMIX_NAMESPACE=x",
        ] {
            assert_eq!(told(alone), None, "{alone}");
        }
    }

    #[test]
    fn the_user_is_told_what_to_type() {
        let of = |name: &str| match name {
            "PMIX_RANK" => Some(String::from("3")),
            "PMIX_NAMESPACE" => Some(String::from("x")),
            _ => None,
        };
        let text = super::of(of).unwrap().to_string();
        assert!(text.contains("LAUNCHER -n N eyrie join PROGRAM"), "{text}");
        let of = |name: &str| match name {
            "SLURM_PROCID" => Some(String::from("3")),
            "SLURM_NTASKS" => Some(String::from("4")),
            _ => None,
        };
        let text = super::of(of).unwrap().to_string();
        assert!(text.contains("as rank 3 of 4"), "{text}");
        let flux = |name: &str| match name {
            "FLUX_TASK_RANK" => Some(String::from("1")),
            "FLUX_JOB_SIZE" => Some(String::from("2")),
            _ => None,
        };
        let told = super::of(flux).unwrap().to_string();
        assert!(told.contains("type `eyrie run -n 2 PROGRAM` (EYRIE_ALONE=1"), "{told}");
        assert!(text.contains("`eyrie run -n 4 PROGRAM` (EYRIE_ALONE=1"), "{text}");
    }
}
