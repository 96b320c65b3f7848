//! Names of MPI libraries by which programs are told apart: the one list for the library, which
//! asks whether a program was linked to it, and for who starts programs, and refuses those that
//! need a library for which there is none of ours.

/// Names under which programs find ours.
pub const OWN: [&str; 8] = [
    "libmpi_abi.so.1",
    "libmpi.so.12",
    "libmpich.so.12",
    "libmpi.so.40",
    "libmpi_mpifh.so.40",
    "libmpi_usempi_ignore_tkr.so.40",
    "libmpi_usempif08.so.40",
    "libmpi_cxx.so.40",
];

/// How the names of Open MPI's libraries begin. (`libmpi.so.12`, which does as well, is MPICH's.)
const OF_OPEN_MPI: [&str; 7] = [
    "libmpi.so.",
    "libmpi_cxx.so.",
    "libmpi_mpifh",
    "libmpi_usempi",
    "libmpi_java.so.",
    "libopen-rte.so.",
    "liboshmem.so.",
];

/// Whether a library of this name is ours.
pub fn is_own(name: &[u8]) -> bool {
    OWN.iter().any(|own| own.as_bytes() == name)
}

/// Whether it is one of Open MPI's for which there is none of ours.
pub fn is_other_of_open_mpi(name: &str) -> bool {
    !is_own(name.as_bytes()) && OF_OPEN_MPI.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_ours_or_another_ones() {
        for own in OWN {
            assert!(is_own(own.as_bytes()) && !is_other_of_open_mpi(own), "{own}");
        }
        for other in ["libmpi.so.20", "libmpi_cxx.so.1", "libopen-rte.so.40", "liboshmem.so.40"] {
            assert!(!is_own(other.as_bytes()) && is_other_of_open_mpi(other), "{other}");
        }
        for none in ["libm.so.6", "libmpi_of_mine.so", "libmpich.so.10"] {
            assert!(!is_own(none.as_bytes()) && !is_other_of_open_mpi(none), "{none}");
        }
    }
}
