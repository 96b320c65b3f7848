//! Files that are put back, without a process.

use super::*;
use crate::kernel::inode::born;
use std::io::Write;

const IN_PLACE: u32 = bits::WRITTEN | bits::CONTENT;

/// A file as it is now, to be found again later.
fn case(path: &Path, flags: u32) -> Case {
    let meta = fs::metadata(path).unwrap();
    Case {
        id: meta.ino(),
        file: file_id(path.as_os_str().as_bytes().to_vec(), &meta),
        path: path.to_path_buf(),
        born_ns: born(&meta),
        links: meta.nlink() as u32,
        flags,
        mode: meta.mode() & 0o7777,
        marks: None,
        elsewhere: None,
        now: Now::There,
        hands_off: None,
        made: None,
    }
}

fn content(text: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Restores a file that held `then`; returns what was said.
fn back(case: Case, then: &str, how: Files, aside: &Path) -> Result<Vec<FileNote>, RestoreError> {
    let content = content(then);
    let contents = |_: u64| Some(&content);
    let aside = Some(aside.to_path_buf());
    let mut undo = Undo::of(vec![case], (how, Appended::Auto), aside, (&[], vec![]));
    let id = undo.cases[0].file.clone();
    if undo.cases[0].is_open() {
        let (path, _) = undo.place(&id)?;
        assert!(path.exists());
    }
    undo.compare(&contents)?;
    undo.put_back(&contents)?;
    Ok(std::mem::take(&mut undo.notes))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |e: fs::DirEntry| e.file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().flatten().map(name).collect();
    names.sort();
    names
}

#[test]
fn what_was_written_is_put_back_and_the_newer_kept() {
    let (folder, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("file");
    fs::write(&file, "then").unwrap();
    let known = || case(&file, IN_PLACE);
    let before = known();
    fs::write(&file, "now and more").unwrap();
    let notes = back(before, "then", Files::Auto, aside.path()).unwrap();
    assert!(text(&file) == "then" && !notes[0].left, "{notes:?}");
    assert_eq!(text(&aside.path().join("file")), "now and more");
    // As it was, there is nothing to be said.
    assert_eq!(back(known(), "then", Files::Refuse, aside.path()).unwrap(), []);
}

#[test]
fn what_was_written_stays_if_that_is_wanted_or_another_writes() {
    let (folder, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("file");
    fs::write(&file, "then").unwrap();
    let before =
        || Case { file: FileId { size: 4, ..case(&file, 0).file }, ..case(&file, IN_PLACE) };
    fs::write(&file, "later").unwrap();
    let notes = back(before(), "then", Files::Warn, aside.path()).unwrap();
    assert!(notes[0].left && text(&file) == "later", "{notes:?}");
    assert!(back(before(), "then", Files::Refuse, aside.path()).is_err());
    let writer = OpenOptions::new().write(true).open(&file).unwrap();
    let notes = back(before(), "then", Files::Auto, aside.path()).unwrap();
    assert!(notes[0].left && text(&file) == "later", "{notes:?}");
    assert!(back(before(), "then", Files::Restore, aside.path()).is_err());
    drop(writer);
    let shared = Case { flags: IN_PLACE | bits::SHARED, ..before() };
    assert!(back(shared, "then", Files::Auto, aside.path()).unwrap()[0].left);
    assert!(names(aside.path()).is_empty() && text(&file) == "later");
}

#[test]
fn names_come_back_and_what_has_them_is_kept() {
    let (folder, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("file");
    fs::write(&file, "then").unwrap();
    let before = case(&file, IN_PLACE);
    fs::create_dir(folder.path().join("old")).unwrap();
    fs::rename(&file, folder.path().join("old/file.1")).unwrap();
    fs::write(&file, "new").unwrap();
    let notes = back(before, "then", Files::Auto, aside.path()).unwrap();
    assert!(notes.iter().all(|note| !note.left), "{notes:?}");
    assert_eq!((text(&file), text(&aside.path().join("file"))), ("then".into(), "new".into()));
    assert_eq!(names(folder.path()), ["file", "old"]);
    assert!(names(&folder.path().join("old")).is_empty());
    // Gone, with its folder.
    let below = folder.path().join("old/below");
    fs::write(&below, "then").unwrap();
    let before = case(&below, IN_PLACE);
    fs::remove_dir_all(folder.path().join("old")).unwrap();
    back(before, "then", Files::Auto, aside.path()).unwrap();
    assert_eq!(
        (text(&below), names(below.parent().unwrap())),
        ("then".into(), vec!["below".into()])
    );
    // One of two names.
    let other = folder.path().join("other");
    fs::hard_link(&file, &other).unwrap();
    let before = case(&file, IN_PLACE);
    fs::remove_file(&file).unwrap();
    back(before, "then", Files::Auto, aside.path()).unwrap();
    assert_eq!(names(folder.path()), ["file", "old", "other"]);
}

#[test]
fn a_journal_that_came_later_goes() {
    let (folder, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("base");
    fs::write(&file, "then").unwrap();
    let before = case(&file, IN_PLACE);
    fs::write(folder.path().join("base-journal"), "hot").unwrap();
    back(before, "then", Files::Auto, aside.path()).unwrap();
    assert_eq!(names(folder.path()), ["base"]);
    assert_eq!(names(aside.path()), ["base-journal"]);
}

#[test]
fn what_was_made_since_goes_unless_what_has_its_name_stays() {
    for stays in [false, true] {
        let (folder, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "then").unwrap();
        let mut old = case(&at("old"), bits::TOUCHED | bits::CONTENT);
        old.flags |= if stays { bits::SHARED } else { 0 };
        fs::remove_file(at("old")).unwrap();
        fs::create_dir(at("made")).unwrap();
        fs::create_dir(at("used")).unwrap();
        for name in ["old", "made/below", "used/theirs", "perhaps"] {
            fs::write(at(name), "now").unwrap();
        }
        let newer = ["made/below", "made", "old", "used", "perhaps"].map(|name| {
            let meta = fs::symlink_metadata(at(name)).unwrap();
            Newer { path: at(name), meta, guessed: ["old", "perhaps"].contains(&name) }
        });
        // Another file with the inode number of the old one would be that.
        old.born_ns = 1;
        let content = content("then");
        let how = (Files::Auto, Appended::Auto);
        let (kept, newer) = (Some(aside.path().to_path_buf()), newer.into_iter().collect());
        let mut undo = Undo::of(vec![old], how, kept, (&[], newer));
        undo.put_back(&|_| Some(&content)).unwrap();
        assert_eq!(names(folder.path()), ["old", "perhaps", "used"], "{:?}", undo.notes);
        assert_eq!(text(&at("old")), if stays { "now" } else { "then" });
        assert_eq!(names(&at("used")), ["theirs"]);
        assert_eq!(text(&aside.path().join("below")), "now");
    }
}

#[test]
fn of_a_log_of_several_it_is_told_unless_its_lines_are_recorded() {
    let (folder, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("log");
    fs::write(&file, "then").unwrap();
    let flags = bits::WRITTEN | bits::GROWS | bits::APPENDS | bits::SHARED;
    let before = case(&file, flags);
    fs::write(&file, "then and more").unwrap();
    let undone = |how: Files, recorded: RecordedAppends| {
        let case = Case { file: before.file.clone(), ..case(&file, flags) };
        let aside = Some(aside.path().to_path_buf());
        let mut undo = Undo::of(vec![case], (how, Appended::Auto), aside, (&[], vec![]));
        undo.recorded = recorded;
        undo.compare(&|_| None)?;
        undo.put_back(&|_| None)?;
        Ok::<_, RestoreError>(std::mem::take(&mut undo.notes))
    };
    let all = |is_it: bool| RecordedAppends::new(move |dev, ino| is_it && dev != 0 && ino != 0);
    for recorded in [RecordedAppends::default(), all(false)] {
        let notes = undone(Files::Auto, recorded.clone()).unwrap();
        assert!(notes[0].left && notes[0].what.starts_with("was appended to"), "{notes:?}");
        assert!(undone(Files::Refuse, recorded).is_err());
    }
    for how in [Files::Auto, Files::Refuse, Files::Restore] {
        assert_eq!(undone(how, all(true)).unwrap(), []);
    }
    assert_eq!(text(&file), "then and more");
}

#[test]
fn files_of_folders_that_changed_their_names_are_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let aside = path("aside");
    for name in ["old", "new"] {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("x"), name).unwrap();
    }
    let touched = bits::TOUCHED | bits::CONTENT;
    let cases = ["old/x", "new/x"].map(|name| case(&path(name), touched));
    let contents = [content("old"), content("new")];
    let ids = cases.each_ref().map(|case| case.id);
    let contents = |id: u64| Some(&contents[ids.iter().position(|i| *i == id).unwrap()]);
    fs::remove_dir_all(path("old")).unwrap();
    fs::rename(path("new"), path("old")).unwrap();
    fs::create_dir(path("new")).unwrap();
    fs::write(path("new/x"), "newer").unwrap();
    let meta = fs::metadata(path("new/x")).unwrap();
    let newer = vec![Newer { path: path("new/x"), meta, guessed: false }];
    let how = (Files::Auto, Appended::Auto);
    let mut undo = Undo::of(cases.into(), how, Some(aside), (&[], newer));
    undo.compare(&contents).unwrap();
    undo.put_back(&contents).unwrap();
    assert!(undo.notes.iter().all(|note| !note.left), "{:?}", undo.notes);
    assert_eq!([text(&path("old/x")), text(&path("new/x"))], ["old", "new"]);
}
