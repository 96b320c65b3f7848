//! Processes that carry another MPI library than Eyrie's: found by RPATH, from a virtual
//! environment, or opened by the program itself. Nothing of what they do in MPI comes to us: each
//! of them takes itself for a job of one rank, or fails in ways of its own.

use eyrie_image::children_of;
use std::path::Path;

/// Most processes of a rank that are looked at.
const MOST_PROCESSES: usize = 64;

/// The MPI library of somebody else that a rank's process, or one that it has started, has mapped.
/// `own`: where ours are.
pub fn of(pid: libc::pid_t, own: Option<&Path>) -> Option<(String, String)> {
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() && at < MOST_PROCESSES {
        if let Some(library) = mapped(found[at], own) {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", found[at]));
            return Some((name.unwrap_or_default().trim_end().to_string(), library));
        }
        found.extend(children_of(&found[at].to_string()));
        at += 1;
    }
    None
}

fn mapped(pid: libc::pid_t, own: Option<&Path>) -> Option<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let own = own.and_then(|own| own.canonicalize().ok());
    paths.filter(|path| is_another(path, own.as_deref())).map(str::to_string).next()
}

/// Whether a file is an MPI library that is not beside ours.
fn is_another(path: &str, own: Option<&Path>) -> bool {
    let path = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    const PARTS: [&str; 6] = [
        "libmpi.so",
        "libmpi_abi.so",
        "libopen-rte.so",
        "libopen-pal.so",
        "libmpich.so",
        "libpmpi.so",
    ];
    PARTS.iter().any(|part| name.starts_with(part))
        && own.is_none_or(|own| path.parent() != Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_from_ours() {
        let own = Some(Path::new("/opt/eyrie/lib"));
        for other in [
            "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4",
            "/opt/venv/lib/libmpi.so.12",
            "/opt/ompi/lib/libopen-rte.so.40 (deleted)",
            "/opt/mpich/lib/libmpi_abi.so.0",
        ] {
            assert!(is_another(other, own), "{other}");
        }
        for none in ["/opt/eyrie/lib/libmpi.so.12", "/usr/lib/libm.so.6", "/tmp/libmpi_of_mine.txt"]
        {
            assert!(!is_another(none, own), "{none}");
        }
        assert_eq!(of(std::process::id() as libc::pid_t, own), None);
    }
}
