//! What is seen of what programs write: whose it is, under whatever names.

use super::*;
use crate::resources::files::renamed_folders::exchange;
use std::process::Command;

#[test]
fn what_a_script_writes_is_told_apart_from_what_others_do() {
    let folder = tempfile::tempdir().unwrap();
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).current_dir(folder.path());
        command.stdin(std::process::Stdio::piped()).spawn().unwrap()
    };
    // What it begins is no child of this process.
    let mut other = shell("read go; (setsid sh -c 'echo 1 >> both; echo 1 >> theirs' &) & read go");
    // Without the right to know of others there is nothing to be tested, and nothing told.
    let Some(watch) = Watch::begin() else {
        return drop((other.kill(), other.wait()));
    };
    let mut own = shell("read go; echo 1 >> own; echo 1 >> both; read go");
    let root = own.id() as libc::pid_t;
    watch.follow(root, &[]);
    io::Write::write_all(other.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let is_there = |name: &str| folder.path().join(name).exists();
    while !is_there("theirs") {
        std::thread::yield_now();
    }
    watch.take(1000);
    io::Write::write_all(own.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let touched = loop {
        watch.take(10);
        let touched = watch.touched(root);
        if touched.len() == 2 || !tells() {
            break touched;
        }
    };
    other.kill().unwrap();
    own.kill().unwrap();
    drop((other.wait(), own.wait()));
    let path = |name: &str| folder.path().join(name);
    let file =
        |name: &str, shared| Touched { path: path(name), shared, unknown: false, folder: false };
    if tells() {
        assert_eq!(touched, [file("both", true), file("own", false)]);
    }
    watch.forget(&BTreeSet::from([root]), std::iter::empty());
    assert!(watch.touched(root).is_empty());
}

#[test]
fn folders_that_come_and_get_other_names_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let Some(watch) = Watch::begin() else { return };
    let mut command = Command::new("sh");
    let line = "read go; mkdir -p a/b; read go; echo 1 > a/b/new; read go; mv a d; read go
        echo 1 >> d/b/later; echo 1 > end; read go";
    command.arg("-c").arg(line).current_dir(folder.path());
    let mut own = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let root = own.id() as libc::pid_t;
    watch.follow(root, &[]);
    let mut on = || io::Write::write_all(own.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let path = |name: &str| folder.path().join(name);
    let watched = |name: &str| {
        while tells() && !watch.seen().folders.values().any(|f| *f == path(name)) {
            watch.take(10);
        }
    };
    let until = |name: &str| loop {
        watch.take(10);
        let touched = watch.touched(root).into_iter().filter(|t| !t.folder).map(|t| t.path);
        let touched: Vec<PathBuf> = touched.collect();
        if touched.contains(&path(name)) || !tells() {
            break touched;
        }
    };
    on();
    watched("a/b");
    on();
    until("a/b/new");
    on();
    watched("d/b");
    on();
    let mut touched = until("end");
    own.kill().unwrap();
    drop(own.wait());
    touched.retain(|path| path.exists());
    let all = ["d/b/later", "d/b/new", "end"].map(path);
    assert!(!tells() || touched == all, "{touched:?}");
}

/// Whether this process may know of others.
fn tells() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// A script that waits for a line before each part, and what was seen of it.
struct Script {
    folder: tempfile::TempDir,
    watch: Watch,
    own: std::process::Child,
}

impl Script {
    /// `None` where nothing is told.
    fn start(line: &str) -> Option<Script> {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::begin().filter(|_| tells())?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).current_dir(folder.path());
        let own = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        watch.follow(own.id() as libc::pid_t, &[]);
        Some(Script { folder, watch, own })
    }

    fn root(&self) -> libc::pid_t {
        self.own.id() as libc::pid_t
    }

    /// Has it go on until a file is there that says so; what it did is told at once then.
    fn goes_on(&mut self, until: &str) {
        io::Write::write_all(self.own.stdin.as_mut().unwrap(), b"go\n").unwrap();
        while !self.folder.path().join(until).exists() {
            std::thread::yield_now();
        }
    }

    fn names(&self, paths: impl Iterator<Item = PathBuf>) -> Vec<String> {
        let name =
            |path: PathBuf| path.strip_prefix(self.folder.path()).unwrap().display().to_string();
        let mut names: Vec<String> =
            paths.map(name).filter(|name| !name.starts_with("end")).collect();
        names.sort();
        names
    }

    /// Files that it was seen writing to.
    fn touched(&self) -> Vec<String> {
        let touched = self.watch.touched(self.root());
        self.names(touched.into_iter().filter(|t| !t.folder && !t.shared).map(|t| t.path))
    }

    /// What it made, and is there.
    fn made(&self) -> Vec<String> {
        let made = self.watch.made(self.root()).there();
        self.names(made.into_iter().map(|made| made.path))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop((self.own.kill(), self.own.wait()));
    }
}

#[test]
fn children_that_are_gone_at_once_are_the_programs() {
    // Nothing is read while they are there.
    let line = "read go; mkdir -p a/b; touch a/b/f c; (echo 1 > d); echo > end; read go";
    let Some(mut script) = Script::start(line) else { return };
    script.goes_on("end");
    assert_eq!(script.made(), ["a", "a/b", "a/b/f", "c", "d"]);
    assert_eq!(script.touched(), ["a/b/f", "c", "d"]);
}

#[test]
fn files_that_change_places_are_both_known() {
    let line =
        "read go; echo 1 > a; echo 1 > b; echo > end; read go; read go; echo > end.2; read go";
    let Some(mut script) = Script::start(line) else { return };
    script.goes_on("end");
    assert_eq!(script.touched(), ["a", "b"]);
    let path = |name: &str| script.folder.path().join(name);
    exchange(&path("a"), &path("b")).unwrap();
    assert_eq!(script.touched(), ["a", "b"]);
    assert_eq!(script.made(), ["a", "b"]);
    // There and back is no exchange.
    fs::rename(path("a"), path("c")).unwrap();
    fs::rename(path("c"), path("a")).unwrap();
    assert_eq!(script.touched(), ["a", "b"]);
    assert_eq!(script.made(), ["a", "b"]);
}

#[test]
fn a_folder_whose_name_another_one_gets_takes_its_files_along() {
    let line = "read go; mkdir new; echo 1 > new/x; echo > end
        read go; mv new old; mkdir new; echo 2 > new/x; echo 2 > new/y; echo > end.2; read go";
    let Some(mut script) = Script::start(line) else { return };
    let notes = tempfile::NamedTempFile::new().unwrap();
    script.watch.note(script.root(), notes.path()).unwrap();
    script.goes_on("end");
    assert_eq!(script.made(), ["new", "new/x"]);
    // All of this is read at once.
    script.goes_on("end.2");
    assert_eq!(script.made(), ["new", "new/x", "new/y", "old", "old/x"]);
    assert_eq!(script.touched(), ["new/x", "new/y", "old/x"]);
    // What a restore will know.
    let noted = Made::read(notes.path()).there().into_iter().map(|made| made.path);
    assert_eq!(script.names(noted), script.made());
}
