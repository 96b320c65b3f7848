//! Compilers, other MPIs in PATH, and Python's.

use crate::commands::doctor::finding::Finding;
use eyrie_process::program;
use eyrie_process::spawn::Prefix;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is started with jobs, by the names that others have for it, too.
const LAUNCHERS: [&str; 3] = ["mpiexec", "mpirun", "mpicc"];
/// Longest wait for Python.
const PYTHON: Duration = Duration::from_secs(10);
const ASK: &str = "import importlib.util as u; s = u.find_spec('mpi4py'); \
                   print(s.submodule_search_locations[0] if s else '')";

/// What is of use where programs are built and started.
pub fn others(binary: &Path) -> Vec<Finding> {
    let mut all = compilers();
    let bin = binary.parent().and_then(|bin| bin.canonicalize().ok());
    all.extend(LAUNCHERS.iter().filter_map(|name| launcher(name, bin.as_deref())));
    all.extend(mpi4py(bin.as_deref()));
    all
}

/// Eyrie itself, with what belongs to it.
pub fn installed(binary: &Path) -> Finding {
    let about = "installation";
    let Prefix { lib, restorer } = Prefix::of(binary);
    let missing = match (&lib, &restorer) {
        (_, None) => "libexec/eyrie-restorer",
        (None, _) => "lib",
        _ => return Finding::fine(about, binary.display().to_string()),
    };
    let text = format!("{missing} is missing beside {}: jobs cannot run", binary.display());
    Finding::stops(about, text, "make install PREFIX=FOLDER, or make build")
}

/// A program in PATH.
fn find(name: &str) -> Option<PathBuf> {
    program::find(OsStr::new(name)).ok()
}

fn compilers() -> Vec<Finding> {
    let wanted = [
        ("C", "EYRIE_CC", &["cc", "gcc", "clang"][..], "mpicc", "gcc"),
        ("C++", "EYRIE_CXX", &["c++", "g++", "clang++"], "mpicxx", "g++"),
        ("Fortran", "EYRIE_FC", &["gfortran", "flang"], "mpifort", "gfortran"),
    ];
    let look =
        |(language, variable, names, wrapper, package): (&str, &str, &[&str], &str, &str)| {
            let about = format!("compiler of {language}");
            let own = std::env::var(variable).ok().filter(|v| !v.is_empty());
            let found = match &own {
                Some(own) => own.split_whitespace().next().and_then(find),
                None => names.iter().find_map(|name| find(name)),
            };
            match found {
                Some(path) => Finding::fine(&about, path.display().to_string()),
                // Who does not write it does not miss it.
                None if language != "C" => Finding::fine(&about, format!("none: no {wrapper}")),
                None => Finding::costs(
                    &about,
                    format!("none is in PATH: {wrapper} compiles nothing"),
                    format!("apt install {package}, dnf install {package}, or {variable}=COMPILER"),
                ),
            }
        };
    wanted.into_iter().map(look).collect()
}

/// Whether the first one in PATH is ours.
fn launcher(name: &str, bin: Option<&Path>) -> Option<Finding> {
    let path = find(name)?;
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    let shown = path.display();
    if bin.is_some() && (folder.as_deref() == bin || real.parent() == bin) {
        return Some(Finding::fine(name, shown.to_string()));
    }
    let words = real.to_string_lossy().into_owned();
    let of = match () {
        () if ["openmpi", "orterun", "prterun", "ompi"].iter().any(|w| words.contains(w)) => {
            "Open MPI's"
        }
        () if ["hydra", "mpich"].iter().any(|w| words.contains(w)) => "MPICH's",
        () if words.contains("intel") => "Intel MPI's",
        () if std::fs::read(&real).is_ok_and(|bytes| is_ours(&bytes)) => return None,
        () => "another MPI's",
    };
    let bin = bin.map_or("BIN".into(), |bin| bin.display().to_string());
    Some(Finding::costs(
        name,
        format!("{shown} is {of}: what it starts or builds need not be a job of Eyrie"),
        format!("export PATH={bin}:$PATH"),
    ))
}

/// A script or link of another prefix of Eyrie.
fn is_ours(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|w| w.eq_ignore_ascii_case(b"eyrie"))
}

/// mpi4py that is bound to a library which Eyrie does not stand in for.
fn mpi4py(bin: Option<&Path>) -> Option<Finding> {
    let about = "mpi4py";
    let folder = PathBuf::from(asked(&find("python3")?)?);
    let list = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
    let is_module = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("MPI.") && name.ends_with(".so")
    };
    let foreign = list.filter(is_module).find_map(|path| program::check_mpi(&path).err());
    let bin = bin.map_or("BIN".into(), |bin| bin.display().to_string());
    Some(match foreign {
        None => Finding::fine(about, folder.display().to_string()),
        Some(why) => Finding::costs(
            about,
            format!("{why}: each process would be a job of its own"),
            format!(
                "MPICC={bin}/mpicc python3 -m pip install --force-reinstall --no-binary mpi4py \
                 mpi4py"
            ),
        ),
    })
}

/// Where Python finds mpi4py, without importing it.
fn asked(python: &Path) -> Option<String> {
    let mut command = Command::new(python);
    command.args(["-c", ASK]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let end = Instant::now() + PYTHON;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::Level;

    #[test]
    fn an_installation_without_its_parts_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        let binary = bin.join("eyrie");
        assert_eq!(installed(&binary).level, Level::Stops);
        for part in ["bin", "lib", "libexec"] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
        }
        let told = installed(&binary);
        assert!(told.level == Level::Stops && told.text.contains("restorer"), "{told:?}");
        std::fs::write(folder.path().join("libexec/eyrie-restorer"), "").unwrap();
        assert_eq!(installed(&binary).level, Level::Fine);
    }
}
