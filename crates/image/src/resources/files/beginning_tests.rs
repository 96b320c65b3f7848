//! Programs that begin anew in a folder, as scripts that have ended.

use super::*;
use crate::kernel::forks::Forks;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Command, Stdio};

struct Place {
    folder: tempfile::TempDir,
    store: tempfile::TempDir,
    watch: Watch,
}

impl Place {
    /// `None` where the kernel does not tell who did what.
    fn new() -> Option<Place> {
        // SAFETY: no arguments.
        let tells = unsafe { libc::geteuid() } == 0;
        let watch = Watch::begin().filter(|_| tells)?;
        let [folder, store] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        Some(Place { folder, store, watch })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn begins(&self) -> Beginning {
        let folder = self.folder.path();
        self.watch.will_be_in(folder);
        let ours = self.store.path();
        let beginning = Beginning::look(folder, &ours.join("none"), ours, 64 << 20);
        beginning.close();
        beginning
    }

    /// A script that waits for a line.
    fn start(&self, line: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", &format!("read go; {line}")]).current_dir(self.folder.path());
        let child = command.stdin(Stdio::piped()).spawn().unwrap();
        self.watch.follow(child.id() as libc::pid_t, &[]);
        child
    }

    /// It runs to its end.
    fn run(&self, line: &str) -> libc::pid_t {
        let mut child = self.start(line);
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        assert!(child.wait().unwrap().success(), "{line}");
        child.id() as libc::pid_t
    }

    fn back_with(
        &self,
        beginning: &Beginning,
        programs: &[libc::pid_t],
        change: impl FnOnce(&mut BeginAnew<'_>),
    ) -> Result<Vec<FileNote>, RestoreError> {
        let programs = programs.iter().copied().collect();
        let mut anew = BeginAnew {
            programs: &programs,
            takes_made: true,
            files: Files::Auto,
            appended: Appended::Auto,
            recorded: RecordedAppends::default(),
            aside: Some(self.store.path().join("ahead")),
            leave_out: Path::new("/nonexistent"),
        };
        change(&mut anew);
        beginning.put_back(&self.watch, anew)
    }

    fn back(&self, beginning: &Beginning, programs: &[libc::pid_t]) -> Vec<FileNote> {
        self.back_with(beginning, programs, |_| ()).unwrap()
    }

    /// All that is there, and what it holds.
    fn all(&self) -> BTreeMap<PathBuf, (u32, String)> {
        let (mut all, mut folders) = (BTreeMap::new(), vec![self.folder.path().to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let (path, meta) = (entry.path(), entry.metadata().unwrap());
                let link = fs::read_link(&path).unwrap_or_default().into_os_string();
                let text = if meta.is_file() { fs::read(&path).unwrap() } else { link.into_vec() };
                let text = String::from_utf8(text).unwrap();
                folders.extend(meta.is_dir().then(|| path.clone()));
                all.insert(path, (meta.mode(), text));
            }
        }
        all
    }
}

fn left(notes: &[FileNote]) -> Vec<String> {
    let name = |note: &FileNote| note.path.file_name().unwrap().to_string_lossy().into_owned();
    notes.iter().filter(|note| note.left).map(name).collect()
}

#[test]
fn what_a_program_did_to_files_is_undone() {
    let Some(place) = Place::new() else { return };
    for name in ["log", "count", "input", "first", "old", "empty", "dir/in", "gone/in", "moved/in"]
    {
        fs::create_dir_all(place.at(name).parent().unwrap()).unwrap();
        fs::write(place.at(name), if name == "empty" { "" } else { name }).unwrap();
    }
    std::os::unix::fs::symlink("log", place.at("latest")).unwrap();
    std::os::unix::fs::symlink("log", place.at("other")).unwrap();
    fs::hard_link(place.at("log"), place.at("second-name")).unwrap();
    let before = place.all();
    let beginning = place.begins();
    let line = "echo more >> log; echo 7 > count; rm input; mv first second; echo x >> empty
        echo n > new; mv new old; echo 8 >> dir/in; mkdir made made/below; echo 1 > made/below/in
        rm -r gone; mv moved elsewhere; echo 9 >> elsewhere/in; chmod 600 count; ln -s log link
        rm latest; ln -sf count other; ln count hard; mkfifo pipe; echo no > input; rm input";
    // Again and again, as a program that dies each time; what was made again is another file.
    let other = "mv gone gone.1; mv gone.1/in gone.1/there; echo more >> input; echo more >> old
        test -e latest; rm other second-name; mv latest other";
    for line in [line, line, other, line] {
        let root = place.run(line);
        assert_ne!(place.all(), before);
        let notes = place.back(&beginning, &[root]);
        assert_eq!(left(&notes), [""; 0], "{notes:?}");
        assert_eq!(place.all(), before, "{notes:?}");
        let log = notes.iter().find(|note| note.path == place.at("log"));
        let put_back = |log: &FileNote| log.what.contains("since the rank began; it is put back");
        assert!(log.map_or(line == other, put_back), "{log:?}");
    }
    assert_eq!(place.back(&beginning, &[1]), [], "somebody else did nothing");
}

#[test]
fn what_others_changed_too_stays_and_is_named() {
    let Some(place) = Place::new() else { return };
    for name in ["both", "theirs", "kept"] {
        fs::write(place.at(name), name).unwrap();
    }
    let beginning = place.begins();
    let root = place.run("echo 1 >> both; echo 1 >> kept; echo 1 > made; mkdir folder");
    let goes_on = place.start("echo 2 >> both; echo 2 >> theirs; echo end; read go");
    let mut goes_on = goes_on;
    goes_on.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let text = |name: &str| fs::read_to_string(place.at(name)).unwrap();
    while !text("theirs").ends_with("2\n") {
        std::thread::yield_now();
    }
    let alone = |anew: &mut BeginAnew<'_>| anew.takes_made = false;
    let notes = place.back_with(&beginning, &[root], alone).unwrap();
    assert_eq!(left(&notes), ["both"], "{notes:?}");
    assert_eq!([text("both"), text("theirs")], ["both1\n2\n", "theirs2\n"]);
    assert!(text("kept") == "kept" && text("made") == "1\n" && place.at("folder").exists());
    // The one that goes on is not alone with it later, either.
    goes_on.kill().unwrap();
    goes_on.wait().unwrap();
    let other = goes_on.id() as libc::pid_t;
    let notes = place.back(&beginning, &[other]);
    assert_eq!((left(&notes), text("theirs")), (vec!["both".to_owned()], "theirs".into()));
}

#[test]
fn programs_that_begin_anew_together_share_what_they_changed() {
    let Some(place) = Place::new() else { return };
    fs::write(place.at("both"), "then\n").unwrap();
    let before = place.all();
    let beginning = place.begins();
    let line = "echo 1 >> both; echo 1 >> made";
    let programs = [place.run(line), place.run(line)];
    let notes = place.back(&beginning, &programs);
    assert_eq!((left(&notes), place.all()), (vec![], before), "{notes:?}");
}

#[test]
fn what_commands_of_several_programs_did_is_known_or_named() {
    for told in [true, false] {
        let Some(place) = Place::new() else { return };
        if !told {
            place.watch.without_families();
        } else if Forks::begin().is_none() {
            continue;
        }
        for name in ["one", "two"] {
            fs::write(place.at(name), name).unwrap();
        }
        let beginning = place.begins();
        // Both are there while either does something.
        let mut both = ["mv one else; mkdir made", "rm two"].map(|line| place.start(line));
        for child in &mut both {
            child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
            assert!(child.wait().unwrap().success());
        }
        let notes = place.back(&beginning, &[both[0].id() as libc::pid_t]);
        let there = ["one", "two", "else", "made"].map(|name| place.at(name).exists());
        if told {
            assert_eq!((left(&notes), there), (vec![], [true, false, false, false]), "{notes:?}");
        } else {
            let mut named = left(&notes);
            named.sort();
            assert_eq!(named, ["made", "one", "two"], "{notes:?}");
            assert_eq!(there, [false, false, true, true], "{notes:?}");
            assert!(notes.iter().all(|note| note.what.contains("not known who")), "{notes:?}");
        }
    }
}

#[test]
fn long_files_are_cut_back_if_they_only_grew() {
    let Some(place) = Place::new() else { return };
    let text = "line\n".repeat(1 + (SMALL_BYTES / 5) as usize);
    for name in ["log", "place", "short"] {
        fs::write(place.at(name), &text).unwrap();
    }
    let beginning = place.begins();
    let line = "echo more >> log; echo more > place; echo other > short; cat log >> place";
    let bytes = |name: &str| fs::metadata(place.at(name)).unwrap().len();
    let long = text.len() as u64;
    for (appended, after) in [(Appended::Keep, long + 5), (Appended::Cut, long)] {
        let root = place.run(line);
        let how = |anew: &mut BeginAnew<'_>| anew.appended = appended;
        let notes = place.back_with(&beginning, &[root], how).unwrap();
        assert_eq!(left(&notes), ["place", "short"], "{notes:?}");
        assert!(notes.iter().all(|note| !note.left || note.what.contains("what it held was")));
        assert_eq!(bytes("log"), after, "{appended:?}: {notes:?}");
        fs::write(place.at("log"), &text).unwrap();
    }
    // Somebody writes to it.
    let root = place.run("echo more >> log");
    let open = OpenOptions::new().append(true).open(place.at("log")).unwrap();
    assert_eq!(left(&place.back(&beginning, &[root])), ["log"]);
    drop(open);
}

#[test]
fn what_is_to_be_refused_is_refused_and_nothing_changed() {
    let Some(place) = Place::new() else { return };
    fs::create_dir(place.at("folder")).unwrap();
    fs::write(place.at("file"), "then").unwrap();
    let beginning = place.begins();
    for line in ["echo now > file", "rmdir folder"] {
        let root = place.run(line);
        let before = place.all();
        let how = |anew: &mut BeginAnew<'_>| anew.files = Files::Refuse;
        let error = place.back_with(&beginning, &[root], how).unwrap_err().to_string();
        assert!(error.contains("--files refuse"), "{error}");
        assert_eq!(place.all(), before);
        let warn = |anew: &mut BeginAnew<'_>| anew.files = Files::Warn;
        assert_eq!(left(&place.back_with(&beginning, &[root], warn).unwrap()).len(), 1);
        assert_eq!(place.all(), before);
    }
}

#[test]
fn what_is_recorded_as_appended_stays() {
    let Some(place) = Place::new() else { return };
    fs::write(place.at("log"), "then\n").unwrap();
    let beginning = place.begins();
    let root = place.run("echo now >> log");
    let after = place.all();
    let how = |anew: &mut BeginAnew<'_>| anew.recorded = RecordedAppends::new(|_, _| true);
    assert_eq!(place.back_with(&beginning, &[root], how).unwrap(), []);
    assert_eq!(place.all(), after);
}
