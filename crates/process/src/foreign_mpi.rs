//! Processes that carry another MPI library than Eyrie's: found by RPATH, from a virtual
//! environment, or opened by the program itself. Nothing of what they do in MPI comes to us: each
//! of them takes itself for a job of one rank, or fails in ways of its own.

use eyrie_image::children_of;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
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

/// Most bytes of a program's file that are looked at.
const MOST_BYTES: u64 = 256 << 20;

/// Whether a program means to call MPI, by its file, or by the script that it runs.
pub fn is_meant(program: &Path, words: &[OsString]) -> bool {
    const OWN: [&[u8]; 1] = [b"MPI_Init"];
    const SCRIPTS: [&[u8]; 2] = [b"mpi4py", b"MPI_Init"];
    // Where programs differ, it is Eyrie's own, and theirs are among the words.
    let several = words.get(1).is_some_and(|word| word == "__part");
    if !several && has_one_of(program, &OWN) {
        return true;
    }
    let named = |word: &OsString| word.as_bytes().windows(6).any(|w| w == b"mpi4py");
    let mut words = words.iter().skip(1).take_while(|word| *word != "--");
    words.any(|word| {
        let is_file = Path::new(word).is_file();
        named(word) || (is_file && has_one_of(Path::new(word), &SCRIPTS))
    })
}

fn has_one_of(path: &Path, all: &[&[u8]]) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let (mut file, mut seen) = (file.take(MOST_BYTES), Vec::with_capacity(1 << 16));
    loop {
        // What stands across two pieces is found, too.
        let kept = seen.len().min(16);
        seen.drain(..seen.len() - kept);
        match (&mut file).take(1 << 16).read_to_end(&mut seen) {
            Ok(0) | Err(_) => return false,
            Ok(_) if all.iter().any(|one| contains(&seen, one)) => return true,
            Ok(_) => {}
        }
    }
}

/// Quickly: most bytes are none that a word begins with.
fn contains(bytes: &[u8], word: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == word[0]) {
        if rest[at..].starts_with(word) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
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

    #[test]
    fn what_means_to_call_mpi_is_told_by_its_file_or_its_script() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        // Across the border of two pieces.
        let mut long = vec![b'M'; (1 << 16) - 4];
        long.extend(b"MPI_Init_thread");
        let (with, without) = (file("with", &long), file("without", &long[..1 << 16]));
        let script = file("x.py", b"from mpi4py import MPI").into_os_string();
        let words = |last: OsString| [OsString::from("python3"), last];
        assert!(is_meant(&with, &[]) && !is_meant(&without, &[]));
        assert!(is_meant(&without, &words(script.clone())));
        assert!(is_meant(&without, &words("import mpi4py".into())));
        assert!(!is_meant(&without, &words("no/such".into())));
        assert!(!is_meant(&without, &[script]), "the first word is a name");
        let part = |word: &Path| ["eyrie".into(), "__part".into(), word.into()];
        assert!(is_meant(&with, &part(&with)) && !is_meant(&with, &part(&without)));
    }
}
